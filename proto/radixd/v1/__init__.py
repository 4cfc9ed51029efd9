"""The contract: generated protobuf messages and gRPC stubs of `radixd.v1`."""
