"""Protobuf messages as plain data."""

import numpy as np
from google.protobuf.message import Message


def plain(message: Message) -> dict[str, object]:
    """All fields, set or not. Integers stay numbers, which protobuf's own JSON turns into strings past 32 bits."""
    return {field.name: _plain_field(message, field.name) for field in message.DESCRIPTOR.fields}


def _plain_field(message: Message, name: str) -> object:
    value = getattr(message, name)
    enum = message.DESCRIPTOR.fields_by_name[name].enum_type
    if isinstance(value, Message):
        return plain(value)
    if isinstance(value, bytes):  # the contract's bytes hold page ids here
        return np.frombuffer(value, dtype="<i4").tolist()
    if enum is not None and isinstance(value, int):
        return enum.values_by_number[value].name
    if isinstance(value, str | int | float):
        return value
    return [plain(item) if isinstance(item, Message) else item for item in value]
