"""What KV costs and what fits: the arithmetic by which the daemon sizes its pools and `radixd plan` explains them.

Whole numbers of bytes, tokens and pages throughout; docs/budget.md derives each formula. No torch.
"""


class BudgetError(ValueError):
    """A question that has no answer; the message names what was asked, its limit and the way out."""
