"""From memory to pages and back."""

from radixd.gpu_pool.budget.capacity import Shortfall, pages_to_hold, shortfall
from radixd.gpu_pool.layout import pages_for_tokens
from radixd.gpu_pool.presets import load_geometry

GLM = load_geometry("glm-5.3")


def test_a_million_token_pool_cannot_hold_one_1m_request() -> None:
    missing = shortfall(1_048_576, pages_for_tokens(GLM, 1_000_000), 64, 3_452_160)
    assert missing == Shortfall(pages=759, tokens=48_576, nbytes=759 * 3_452_160)
    assert str(missing) == "48,576 tokens (759 pages, 2,620,189,440 bytes a device) are missing"


def test_a_1_1_million_token_pool_holds_one_and_51392_tokens_more() -> None:
    pages = pages_for_tokens(GLM, 1_100_000)
    assert shortfall(1_048_576, pages, 64, 3_452_160) is None
    assert pages * 64 - 1_048_576 == 51_392


def test_partial_pages_cost_a_whole_one() -> None:
    assert [pages_to_hold(tokens, 64) for tokens in (0, 1, 64, 65)] == [0, 1, 1, 2]
    assert shortfall(65, 1, 64, 10) == Shortfall(1, 1, 10)
    assert shortfall(64, 1, 64, 10) is None
