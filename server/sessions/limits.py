"""What a message may hold."""

from dataclasses import dataclass

from radixd.server.cache.refusal import Reason, Refusal


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds that OpenSession states; see Limits in types.proto."""

    message_bytes: int = 64 * 2**20
    tokens: int = 1_572_864
    operations: int = 4_096
    leases: int = 65_536
    namespace_bytes: int = 4_096
    client_name_bytes: int = 128
    move_pairs: int = 4_096
    replay_batches: int = 1_024
    replay_bytes: int = 64 * 2**20


def check_limit(field: str, value: int, limit: int, unit: str) -> None:
    """Refuses `field` with LIMIT_EXCEEDED where it holds more than `limit`, both counted in `unit`."""
    if value > limit:
        message = f"{field}: {value} {unit} are above the limit of {limit}; the limits stand in OpenSession's reply"
        raise Refusal(Reason.LIMIT_EXCEEDED, message, field=field, facts={"limit": limit, "value": value})
