"""Who may hold pages, and how their end is noticed. Pure: no grpc, no protobuf, no clock of its own."""
