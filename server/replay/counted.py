"""Numbers of things, for people."""


def counted(number: int, noun: str) -> str:
    """As in "1 kill" and "2 kills"; `noun` is one that takes an s."""
    return f"{number:,} {noun}{'s' * (number != 1)}"
