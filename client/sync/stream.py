"""The stream that a session's Batches and replies travel on."""

from collections.abc import Iterator
from queue import SimpleQueue

import grpc

from radixd.client.channel import SCHEDULE
from radixd.v1 import cache_pb2


class Stream:
    """One Schedule call. Opened at once; sending never blocks."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        method: grpc.StreamStreamMultiCallable[bytes, cache_pb2.BatchReply] = channel.stream_stream(
            SCHEDULE, request_serializer=None, response_deserializer=cache_pb2.BatchReply.FromString
        )
        self._call = method(iter(self._outbox.get, None))
        self.replies: Iterator[cache_pb2.BatchReply] = self._call

    def send(self, data: bytes) -> None:
        self._outbox.put(data)

    def cancel(self) -> None:
        self._outbox.put(None)
        self._call.cancel()
