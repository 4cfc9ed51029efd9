"""Two plans side by side."""

from radixd.gpu_pool.budget.plan import Plan
from radixd.server.cli.output import print_table
from radixd.server.cli.plan_json import figures, plan_dict


def print_side_by_side(left: Plan, right: Plan) -> None:
    """Every figure of both, and by how much the second differs."""
    print(f"this:      {left.model.title}\nthe other: {right.model.title}")
    ours, theirs = dict(figures(plan_dict(left))), dict(figures(plan_dict(right)))
    rows = [
        (name, _cell(ours, name), _cell(theirs, name), _change(ours.get(name, 0), theirs.get(name, 0)))
        for name in dict.fromkeys((*ours, *theirs))
    ]
    print_table(("figure", "this", "the other", "change"), rows)


def _cell(figures: dict[str, int], name: str) -> int | str:
    return figures.get(name, "-")


def _change(left: int, right: int) -> str:
    if not left or not right or left == right:
        return ""
    return f"{100 * (right - left) / left:+.1f} %"
