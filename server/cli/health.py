"""`radixd health`: one question that a probe can ask."""

import argparse

from radixd.server.cli.command import Commands, add_command
from radixd.server.cli.daemon_channel import CommandError, add_target, daemon_channel
from radixd.server.cli.numbers import seconds

METHOD = "/grpc.health.v1.Health/Check"
EXAMPLES = """\
Exits with 0 while the service answers SERVING, else with 1.

examples:
  radixd health                              everything is well: ask this for readiness
  radixd health radixd.v1.Cache --timeout 5  the daemon lives and serves a pool: ask this for liveness
"""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "health", run, "ask gRPC health; exit 1 unless it answers SERVING", EXAMPLES)
    parser.add_argument("service", nargs="?", default="", help="of which service (default: the whole daemon)")
    parser.add_argument(
        "--timeout",
        type=seconds(0.01),
        default=2.0,
        metavar="S",
        help="no answer within it: no (default: %(default)s)",
    )
    add_target(parser)


def run(args: argparse.Namespace) -> int:
    """Print the status; 0 where it is SERVING."""
    import grpc
    from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

    request = HealthCheckRequest(service=args.service)
    with daemon_channel(args.target) as channel:
        check = channel.unary_unary(METHOD, HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString)
        try:
            reply = check(request, timeout=args.timeout)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise CommandError(f"the daemon at {args.target} has no service {args.service!r}") from error
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise CommandError(f"the daemon at {args.target} did not answer within {args.timeout:g} s") from error
            raise
    print(HealthCheckResponse.ServingStatus.Name(reply.status))
    return 0 if reply.status == HealthCheckResponse.SERVING else 1
