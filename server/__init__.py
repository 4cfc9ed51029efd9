"""The daemon: the pure cache core, its gRPC face, configuration and command line."""
