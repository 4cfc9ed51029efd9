"""The gRPC face: the only place that knows protobuf and the cache both."""

from radixd.server.rpc.services import add_services

__all__ = ["add_services"]
