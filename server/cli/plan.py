"""`radixd plan`: what fits, before anything is started."""

import argparse
import json
import re
import sys

from radixd.server.cli.command import Commands, add_command

EXAMPLES = """\
Tokens: K is 2^10 and M is 2^20, so 1M is 1,048,576. Bytes: GB is 10^9 and GiB is 2^30; every figure is exact.
docs/budget.md derives each of them.

examples:
  radixd plan --preset glm-5.3                                   what a token, a page and a context cost
  radixd plan --context 1M --batch 32 --gpu-memory 141GB --weights 90GB
  radixd plan --from-config /models/GLM-5.3/config.json --bytes 40GiB
  radixd plan --config /etc/radixd.toml                          the pages that this daemon will have
  radixd plan --bytes 100GB --compare indexer=39                 two plans side by side; any flag may differ
  radixd plan --tokens 1100000 --admit 1M,128K,8K                which requests fit together
  radixd plan --context 1M --hit 100000 --json
"""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "plan", run, "show what KV costs and what fits", EXAMPLES)
    # "-5GB" is a value, which is told what is wrong with it, and no option; newer Pythons take it so by themselves.
    parser._negative_number_matcher = re.compile(r"-\.?\d")
    parser.add_argument("--json", action="store_true", help="for programs: a list of plans")
    parser.add_argument(
        "--config", metavar="FILE",
        help="the pools of a daemon's TOML; gpu_memory_fraction is of what is free now, so not beside that daemon, and "
        "makes a CUDA context on each GPU to ask",
    )  # fmt: skip
    parser.add_argument("--compare", metavar="FLAG=VALUE", help="a second plan beside it, with other values")
    _add_model(parser)
    _add_memory(parser)
    _add_question(parser)


def run(args: argparse.Namespace) -> int:
    """Print the plans; 2 where the question makes no sense."""
    from radixd.server.cli.plan_compare import print_side_by_side
    from radixd.server.cli.plan_json import plan_dict
    from radixd.server.cli.plan_options import read_plans
    from radixd.server.cli.plan_report import print_plan

    flags = {
        name.replace("_", "-"): value
        for name, value in vars(args).items()
        if value is not None and name not in ("command", "run", "json")
    }
    try:
        plans = read_plans(flags)
    except ValueError as error:
        for line in str(error).splitlines():
            print(f"radixd plan: {line}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps([plan_dict(plan) for plan in plans], indent=2))
    elif args.compare:
        print_side_by_side(*plans)
    else:
        for plan in plans:
            print_plan(plan)
    return 0


def _add_model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the model")
    group.add_argument("--preset", metavar="NAME", help="a geometry known by name (default: glm-5.3)")
    group.add_argument("--from-config", metavar="FILE", help="a checkpoint's config.json, or a geometry file")
    group.add_argument("--indexer", metavar="N", help="as if N layers wrote an index")
    group.add_argument("--mtp", metavar="N", help="next-token layers beside the model's own (default: 0)")
    group.add_argument("--kpool", metavar="N", help="index_kpool: tokens that share an index entry (default: 1)")
    group.add_argument("--dcp", metavar="N", help="decode context parallel ranks (default: 1)")
    group.add_argument("--page-size", metavar="N", help="tokens (default: the geometry's, 64)")
    group.add_argument("--stride-multiple", metavar="N", help="pad a page to a multiple of N bytes; 656 on SM100")


def _add_memory(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the pool on one device")
    group.add_argument("--tokens", metavar="N", help="usable tokens; or --bytes, or --gpu-memory")
    group.add_argument("--bytes", metavar="SIZE", help="page 0 included, such as 64GiB")
    group.add_argument("--gpu-memory", metavar="SIZE", help="of a whole GPU, such as 141GB, of which the pool gets:")
    group.add_argument("--fraction", metavar="F", help="this share of what the next two leave (default: 0.9)")
    group.add_argument("--weights", metavar="SIZE", help="what else lies on the GPU (default: nothing)")
    group.add_argument("--scratch", metavar="SIZE", help="what the engine needs (default: as computed)")
    group.add_argument("--host-tokens", metavar="N", help="the host tier; or --host-bytes")
    group.add_argument("--host-bytes", metavar="SIZE", help="the host tier, such as 256GiB")


def _add_question(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("requests, engine and node")
    group.add_argument("--context", metavar="N[,N]", help="lengths to show (default: 8K,128K,512K,1M)")
    group.add_argument("--batch", metavar="N", help="requests of each length at once (default: 1)")
    group.add_argument("--admit", metavar="N[,N]", help="requests that come in this order: which fit together?")
    group.add_argument("--hit", metavar="N", help="a cached prefix of the longest context: what does it save?")
    group.add_argument("--max-batched-tokens", metavar="N", help="of one forward pass (default: 8192)")
    group.add_argument("--drafts", metavar="N", help="speculative tokens a request and step (default: 0)")
    group.add_argument("--node-gpus", metavar="N", help="GPUs of the node (default: 8)")
