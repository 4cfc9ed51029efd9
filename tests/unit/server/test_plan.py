"""`radixd plan`: what it prints, what it refuses, and that it says what the daemon's configuration will be."""

import json
from pathlib import Path

import pytest

from radixd.server.cli import main
from radixd.server.config.file import read_config
from tests.unit.gpu_pool.test_presets import GLM53_CONFIG

Capture = pytest.CaptureFixture[str]


def planned(capsys: Capture, *flags: str) -> dict[str, object]:
    """The numbers of one plan, by their path."""
    assert main(["plan", "--json", *flags]) == 0
    (plan,) = json.loads(capsys.readouterr().out)
    return dict(flat(plan))


def flat(data: object, path: str = "") -> list[tuple[str, object]]:
    if isinstance(data, dict):
        return [leaf for key, value in data.items() for leaf in flat(value, f"{path}.{key}" if path else key)]
    if isinstance(data, list):
        return [leaf for number, value in enumerate(data) for leaf in flat(value, f"{path}.{number}")]
    return [(path, data)]


def changed(capsys: Capture, *flags: str, base: tuple[str, ...] = ("--context", "1M", "--bytes", "100GB")) -> set[str]:
    """The first two names of every figure that the flags change."""
    before, after = planned(capsys, *base), planned(capsys, *base, *flags)
    assert before.keys() == after.keys()
    return {".".join(path.split(".")[:2]) for path in before if before[path] != after[path]}


def refused(capsys: Capture, *flags: str) -> str:
    """The one line on stderr of a question that makes no sense."""
    assert main(["plan", *flags]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("radixd plan: ")
    return line.removeprefix("radixd plan: ")


def test_the_context_table(capsys: Capture) -> None:
    assert main(["plan", "--preset", "glm-5.3"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "glm-5.3 (preset): 78 layers" in lines
    for row in (
        "8K 8,192 128 419,168,256 22,708,224 441,876,480 0.44 GB = 0.41 GiB 32,768 512",
        "128K 131,072 2,048 6,706,692,096 363,331,584 7,070,023,680 7.07 GB = 6.58 GiB 524,288 8,192",
        "512K 524,288 8,192 26,826,768,384 1,453,326,336 28,280,094,720 28.28 GB = 26.34 GiB 2,097,152 32,768",
        "1M 1,048,576 16,384 53,653,536,768 2,906,652,672 56,560,189,440 56.56 GB = 52.68 GiB 4,194,304 65,536",
    ):
        assert row in lines


def test_a_gpu_a_batch_and_everything_else_on_paper(capsys: Capture) -> None:
    flags = ("--context", "1M", "--batch", "32", "--gpu-memory", "141GB", "--weights", "60 GB", "--host-bytes", "10GB")
    assert main(["plan", *flags, "--hit", "100000", "--admit", "1M,8K,2M"]) == 0
    text = capsys.readouterr().out
    assert "32 × 1M: 524,288 pages, 1,809,926,062,080 bytes (1809.93 GB = 1685.62 GiB)" in text
    assert "holds 1 request of 1M at once; 32 lack" in text
    assert "0.9 of what a GPU of 141.00 GB = 131.32 GiB has beside 60.00 GB = 55.88 GiB of weights and" in text
    assert "host tier: 2,895 pages, 185,280 tokens" in text
    assert "found: 99,968 tokens in 1,562 pages" in text
    assert "8K 8,192 128 admitted" in " ".join(text.split())
    assert "at most 1,303,232 tokens a request, or a pool of 2,097,152 tokens" in text


def test_weights_that_nobody_gave_are_told_and_a_pool_is_the_only_capacity(capsys: Capture) -> None:
    assert main(["plan", "--gpu-memory", "141GB"]) == 0
    without = capsys.readouterr().out
    assert "no weights given: counted as 0; say --weights" in without
    assert "100.00 GB" not in without
    assert main(["plan", "--gpu-memory", "141GB", "--weights", "1GB"]) == 0
    assert "no weights given" not in capsys.readouterr().out
    assert main(["plan"]) == 0
    alone = capsys.readouterr().out
    assert "100.00 GB = 93.13 GiB hold 1,853,824 tokens" in alone
    assert "of index K (2.91 GB = 2.71 GiB) for each request of 1M" in alone


def test_dcp_is_told_to_be_sglangs_rule(capsys: Capture) -> None:
    assert main(["plan", "--dcp", "8", "--bytes", "100GB"]) == 0
    assert "vLLM 0.32 shards it" in capsys.readouterr().out
    assert main(["plan", "--bytes", "100GB"]) == 0
    assert "vLLM 0.32 shards it" not in capsys.readouterr().out


def test_a_presets_indexer_has_its_own_heads(capsys: Capture) -> None:
    assert planned(capsys, "--hit", "64")["hit.indexer_flop.per_pair"] == 8_192 * 21
    assert planned(capsys, "--preset", "deepseek-v3.2", "--hit", "64")["hit.indexer_flop.per_pair"] == 2 * 8_192 * 61


def test_a_gpus_share_is_taken_after_weights_and_scratch(capsys: Capture) -> None:
    flags = ("--gpu-memory", "141GB", "--weights", "40GB", "--fraction", "0.5", "--scratch", "1GB")
    plan = planned(capsys, *flags)
    assert plan["pool.given_bytes"] == 50 * 10**9
    assert plan["pool.pages"] == 50 * 10**9 // 3_452_160 - 1
    computed = planned(capsys, *flags[:-2])
    assert plan["outside_the_pool.bytes"] == computed["outside_the_pool.bytes"]
    assert computed["pool.given_bytes"] == (101 * 10**9 - int(str(computed["outside_the_pool.bytes"]))) // 2


def test_drafts_and_a_batch_make_decode_rows(capsys: Capture) -> None:
    plan = planned(capsys, "--batch", "32", "--drafts", "3", "--max-batched-tokens", "2048")
    assert plan["outside_the_pool.decode_logits.rows"] == 128
    assert plan["outside_the_pool.topk_indices_bytes"] == 16 * 2**20


def test_39_index_layers_side_by_side(capsys: Capture) -> None:
    assert main(["plan", "--compare", "indexer=39", "--bytes", "100GB"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "bytes per slot: cell 53,940 56,316 +4.4 %" in lines
    assert "usable tokens in 100 GB 1,853,824 1,775,616 -4.2 %" in lines
    assert "pool: tokens 1,853,824 1,775,616 -4.2 %" in lines
    assert "bytes per slot: latent 51,168 51,168" in lines


def test_any_flag_may_differ(capsys: Capture) -> None:
    assert main(["plan", "--json", "--compare", "preset=deepseek-v3.2,mtp=1", "--mtp", "2"]) == 0
    left, right = json.loads(capsys.readouterr().out)
    assert (left["geometry"]["layers"]["latent"], right["geometry"]["layers"]["latent"]) == (80, 62)


GROWN = {"tail_waste_bytes_per_request", "usable_tokens_in_100_GB", "bytes_per_slot.cell"}
PER_PAGE = {"bytes_per_page.index", "bytes_per_page.page", "bytes_per_page.stride"}
POOL = {"pool.pages", "pool.tokens", "pool.bytes", "pool.page_0_bytes"}
ENGINES = {"engines.sglang", "engines.vllm"}
NODE = {"node.tensor_parallel", "node.data_parallel_attention", "node.index_buffer_slots_a_rank"}


def test_indexer_changes_the_index_and_what_is_made_of_it(capsys: Capture) -> None:
    expected = GROWN | PER_PAGE | POOL | ENGINES | NODE
    expected |= {"geometry.layers", "geometry.source", "bytes_per_slot.index", "contexts.0"}
    assert changed(capsys, "--indexer", "39") == expected


def test_mtp_changes_both_caches_and_what_is_made_of_them(capsys: Capture) -> None:
    expected = GROWN | PER_PAGE | POOL | ENGINES | NODE
    expected |= {
        "geometry.layers",
        "bytes_per_slot.latent",
        "bytes_per_slot.index",
        "bytes_per_page.latent",
        "contexts.0",
    }
    assert changed(capsys, "--mtp", "1") == expected


def test_kpool_changes_the_index_and_the_logical_page(capsys: Capture) -> None:
    expected = GROWN | PER_PAGE | POOL | ENGINES | NODE
    expected |= {"bytes_per_slot.index", "page.slots", "page.tokens", "bytes_per_page.latent", "contexts.0"}
    # One physical index page serves two pages' tokens: it costs the same, and so does the index of a page.
    assert changed(capsys, "--kpool", "2") == expected - {"bytes_per_page.index"}


def test_dcp_changes_the_ranks_index_and_the_tokens_of_a_page(capsys: Capture) -> None:
    expected = GROWN | PER_PAGE | POOL | ENGINES | NODE
    expected |= {"bytes_per_slot.index", "page.tokens", "contexts.0", "pool.requests"}
    assert changed(capsys, "--dcp", "8") == expected
    before, after = (planned(capsys, *flags) for flags in ((), ("--dcp", "8")))
    assert after["contexts.3.bytes.index"] == before["contexts.3.bytes.index"]
    assert 8 * int(str(after["contexts.3.bytes.latent"])) == before["contexts.3.bytes.latent"]


def test_a_padded_stride_changes_no_page_but_its_place(capsys: Capture) -> None:
    expected = POOL | NODE | {"usable_tokens_in_100_GB", "bytes_per_page.stride", "contexts.0"}
    assert changed(capsys, "--stride-multiple", "656") == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--page-size", "48"), "page-size 48: the DSA indexer's kernels accept pages of 64 alone"),
        (("--page-size", "0"), "--page-size: 0 is outside [1, 4096]"),
        (("--gpu-memory", "141GB", "--fraction", "1.2"), "--fraction: fraction 1.2 is outside (0, 1]"),
        (("--gpu-memory", "141GB", "--fraction", "nan"), "--fraction: fraction nan is outside (0, 1]"),
        (("--gpu-memory", "141GB", "--fraction", "most"), "--fraction: expected a number such as 0.9, got 'most'"),
        (("--gpu-memory", "-5GB"), "--gpu-memory: expected a number of bytes"),
        (("--gpu-memory", "141"), "--gpu-memory: 141 bytes are less than any GPU has: say the unit, as in 141GB"),
        (("--gpu-memory", "-5"), "--gpu-memory: expected a number of bytes"),
        (
            ("--gpu-memory", "2GB", "--weights", "3GB"),
            "--weights: 3.00 GB = 2.79 GiB leave nothing of a GPU of 2.00 GB",
        ),
        (("--gpu-memory", "2GB", "--scratch", "2GB"), "scratch_bytes 2,000,000,000 leaves nothing"),
        (("--bytes", "-1"), "--bytes: expected a number of bytes"),
        (("--bytes", "1KB"), "1000 bytes hold no usable page: 6904320 are needed"),
        (("--tokens", "63"), "63 tokens are less than one page of 64"),
        (("--tokens", "-64"), "--tokens: expected a number of tokens"),
        (("--tokens", "64", "--bytes", "1GB"), "--bytes: give one of --tokens, --bytes and --gpu-memory"),
        (("--fraction", "0.5"), "--fraction: of which GPU? Give --gpu-memory"),
        (("--kpool", "3"), "kpool 3 is no power of two"),
        (("--kpool", "2", "--dcp", "2"), "kpool 2 with dcp 2"),
        (("--indexer", "0"), "--indexer: 0 is outside [1, 4096]"),
        (("--indexer", "79"), "indexer 79 is outside [1, 78]"),
        (("--mtp", "-1"), "--mtp: -1 is outside [0, 4096]"),
        (("--dcp", "3", "--bytes", "1GB"), "gpus 8 is no positive multiple of dcp 3"),
        (("--batch", "x"), "--batch: expected a whole number, got 'x'"),
        (("--batch", "9" * 30), "--batch: expected a whole number"),
        (("--context", "0"), "--context: 0 is outside [1, 2147483648] tokens"),
        (("--context", "1M,"), "--context: expected a number of tokens such as 131072, 128K or 1M, got ''"),
        (("--context", ""), "--context: expected a string of 1 to 4096 characters"),
        (("--context", "8K", "--hit", "8K"), "hit 8192 is outside [0, 8191]"),
        (("--admit", "1M"), "--admit: into which pool?"),
        (("--preset", "glm"), "--preset: 'glm' is none of glm-5.3,"),
        (("--compare", "39"), "--compare: expected FLAG=VALUE such as indexer=39, got '39'"),
        (("--compare", "indexr=39"), "--indexr: unknown; did you mean 'indexer'?"),
        (("--config", "/nowhere.toml"), "/nowhere.toml: No such file or directory"),
        (("--config", "/nowhere.toml", "--mtp", "1"), "--mtp: leave it out: the file of --config says"),
        (("--from-config", "/nowhere.json"), "geometry '/nowhere.json' is neither a preset"),
        (("--from-config", ""), "--from-config: the name is empty"),
        (("--from-config", "a.json", "--preset", "tiny"), "--from-config: give either --preset or --from-config"),
    ],
)
def test_nonsense_is_one_clear_line(capsys: Capture, flags: tuple[str, ...], expected: str) -> None:
    assert refused(capsys, *flags).startswith(expected)


def test_several_mistakes_are_a_line_each(capsys: Capture) -> None:
    assert main(["plan", "--mtp", "x", "--dcp", "0", "--bytes", "much"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_a_checkpoints_config_says_how_it_was_read(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**GLM53_CONFIG, "index_n_heads": 64}))
    plan = planned(capsys, "--from-config", str(path), "--hit", "64")
    assert plan["bytes_per_slot.cell"] == 53_940
    assert str(plan["geometry.source"]).endswith("indexer on 21 of 78 layers by indexer_types")
    assert plan["hit.indexer_flop.per_pair"] == 2 * 64 * 128 * 21


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, "num_hidden_layers"),
        ({**GLM53_CONFIG, "num_hidden_layers": 0}, "num_hidden_layers: 0 is outside [1, 4096]"),
        ({**GLM53_CONFIG, "index_n_heads": 0}, "index_n_heads: 0 is outside"),
    ],
)
def test_a_config_without_the_fields_is_one_line(
    tmp_path: Path, capsys: Capture, config: dict[str, object], expected: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert expected in refused(capsys, "--from-config", str(path))


CONFIG = """
[[pools]]
name = "a"
bytes = "3GB"
stride_multiple = 656
host_bytes = "1GB"
max_context = 1000
[[pools]]
name = "b"
geometry = "tiny"
tokens = 6500
"""


def test_a_plan_for_a_configuration_has_the_pages_of_its_pools(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "radixd.toml"
    path.write_text(CONFIG)
    assert main(["plan", "--config", str(path), "--json"]) == 0
    plans = json.loads(capsys.readouterr().out)
    pools = read_config(path).pools
    assert [plan["pool"]["pages"] for plan in plans] == [pool.layout.num_pages for pool in pools]
    assert [plan["pool"]["bytes"] for plan in plans] == [pool.layout.nbytes for pool in pools]
    assert plans[0]["host"]["pages"] == pools[0].host.pages
    assert [context["tokens"] for context in plans[0]["contexts"]] == [1_000]
    assert "host" not in plans[1]


def test_the_same_sizes_as_flags_plan_the_same_pages(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "radixd.toml"
    path.write_text(CONFIG)
    first, second = read_config(path).pools
    flags = ("--bytes", "3GB", "--stride-multiple", "656", "--host-bytes", "1GB")
    plan = planned(capsys, *flags)
    assert (plan["pool.pages"], plan["host.pages"]) == (first.layout.num_pages, first.host.pages)
    assert planned(capsys, "--preset", "tiny", "--tokens", "6500")["pool.pages"] == second.layout.num_pages


def test_a_configurations_mistakes_are_named_with_its_file(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "radixd.toml"
    path.write_text("[[pools]]\ntokens = 6400\nmax_context = 6401")
    expected = (
        f"{path}: pools[0].max_context: 6401 tokens do not fit the pool's 6400: 1 tokens (1 pages, 3,452,160 bytes"
    )
    assert refused(capsys, "--config", str(path)).startswith(expected)
