"""Capacity below the expected: against tokens, a model, a plan; and what explains it."""

import pytest

from radixd.gpu_pool.budget.cost import cost_of
from radixd.gpu_pool.layout import usable_pages
from radixd.gpu_pool.presets import load_geometry
from radixd.server.cli.doctor_expect import read_expectation
from radixd.server.doctor.capacity import capacity_below_expected
from radixd.server.doctor.evidence import Evidence
from radixd.server.doctor.expectation import Expectation
from radixd.server.doctor.finding import Finding
from radixd.server.doctor.scrape import Scrape
from tests.unit.doctor.saved import GLM, P, facts, text

COST = cost_of(load_geometry("glm-5.3"))
GIVEN = 100 * 10**9


def pool(
    pages: int, parts: dict[str, int] | None = None, *, expect: str = "", never: int = 0, devices: int = 1
) -> Evidence:
    parts = parts or GLM
    changes = {
        'radixd_pool_pages{tier="device"}': pages + 1,
        "radixd_page_bytes": P * sum(parts.values()),
        "radixd_pool_devices": devices,
        'radixd_allocation_failures_total{reason="never_fits"}': never,
        **{f'radixd_token_bytes{{component="{name}"}}': nbytes for name, nbytes in parts.items()},
    }
    now = Scrape.parse(text(changes).replace('geometry="tiny"', 'geometry="glm-5.3"'))
    return Evidence("default", now, expected=read_expectation(expect) if expect else None)


def found(evidence: Evidence) -> Finding:
    finding = capacity_below_expected(evidence)
    assert finding
    assert finding.name == "CapacityBelowExpected"
    return finding


def pages_of(parts: dict[str, int]) -> int:
    return usable_pages(GIVEN, P * sum(parts.values()))


@pytest.mark.parametrize("expect", ["glm-5.3", "preset=glm-5.3,bytes=100GB", "1M", "1853824"])
def test_a_pool_as_planned_is_enough(expect: str) -> None:
    assert capacity_below_expected(pool(pages_of(GLM), expect=expect)) is None


@pytest.mark.parametrize("expect", ["glm-5.3", "preset=glm-5.3,bytes=100GB", "1853824"])
def test_more_index_layers(expect: str) -> None:
    parts = {**GLM, "index": 39 * 132}
    finding = found(pool(pages_of(parts), parts, expect=expect))
    assert "holds 1,775,616 tokens where 1,853,824 are expected" in finding.cause
    assert (
        "56,316 bytes in place of 53,940 (4.2 % fewer fit the same memory); 39 index layers in place of 21"
        in finding.cause
    )
    assert facts(finding)["index bytes a token, expected"] == 2_772


def test_an_index_that_dcp_replicates() -> None:
    parts = {**GLM, "index": 8 * 2_772}
    assert (
        "168 index layers in place of 21, or DCP 8, which keeps the index"
        in found(pool(pages_of(parts), parts, expect="glm-5.3")).cause
    )


def test_an_mtp_layer() -> None:
    parts = {"latent": 79 * 656, "index": 22 * 132}
    finding = found(pool(15_000, parts, expect="1M"))
    assert "79 latent layers in place of 78, as with an MTP layer" in finding.cause
    assert "22 index layers in place of 21, as with an MTP layer" in finding.cause


def test_too_few_bytes() -> None:
    finding = found(pool(20_000, expect="preset=glm-5.3,gpu-memory=141GB,fraction=0.8"))
    assert "it takes 69.05 GB = 64.30 GiB of a device where the plan has" in finding.cause
    assert "fraction, weights and scratch" in finding.cause
    assert "in place of" not in finding.cause


def test_page_0_is_nobodys() -> None:
    finding = found(pool(15_625, expect="1000001"))
    assert "page 0" in finding.cause
    assert facts(finding)["missing pages"] == 1


def test_a_million_that_is_decimal() -> None:
    finding = found(pool(15_625, expect="1M"))
    assert "1M is 1,048,576 tokens, and the pool was given 1,000,000 or so" in finding.cause
    assert facts(finding)["missing pages"] == 759
    assert facts(finding)["missing bytes on a device"] == 759 * 3_452_160


def test_devices_hold_the_same_pages() -> None:
    assert "its 8 devices hold the same pages" in found(pool(3_000, expect="1M", devices=8)).cause
    assert "given 13,384 pages too few" in found(pool(3_000, expect="1M")).cause


def test_a_plan_that_counts_all_ranks_of_dcp() -> None:
    parts = {**GLM, "index": 8 * 2_772}
    finding = found(
        pool(usable_pages(GIVEN, P * sum(parts.values())), parts, expect="preset=glm-5.3,dcp=8,bytes=100GB")
    )
    assert "counts 512 tokens a page, those of all ranks under DCP" in finding.cause
    assert "in place of" not in finding.cause, "its bytes are as planned"


def test_nearly_all_of_a_plan_is_enough_and_nearly_all_of_a_request_is_not() -> None:
    assert capacity_below_expected(pool(pages_of(GLM) - 579, expect="preset=glm-5.3,bytes=100GB")) is None
    assert capacity_below_expected(pool(pages_of(GLM) - 580, expect="preset=glm-5.3,bytes=100GB")) is not None
    assert capacity_below_expected(pool(16_384, expect="1M")) is None
    assert capacity_below_expected(pool(16_383, expect="1M")) is not None


@pytest.mark.parametrize("expect", ["", "glm-5.3"])
def test_requests_that_never_fit_are_told_of_in_any_case(expect: str) -> None:
    finding = found(pool(1_000, expect=expect, never=4))
    assert "the empty pool of 64,000 tokens could not hold" in finding.cause
    assert facts(finding)["operations refused as NEVER_FITS"] == 4


def test_a_component_that_nobody_expected() -> None:
    expected = Expectation(cost=cost_of(load_geometry("llama-8b")), tokens=2_000_000)
    parts = {"latent": 200_000, "index": 2_772}
    finding = found(Evidence("default", pool(1_000, parts).now, expected=expected))
    assert "latent is no part of what was expected" in finding.cause
