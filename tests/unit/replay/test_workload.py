"""A workload is the same in every process, and what it says it is."""

import json
from pathlib import Path

import numpy as np
import pytest

from radixd.server.replay.conversations import ADAPTER, conversation_requests
from radixd.server.replay.faults import Faults
from radixd.server.replay.mooncake import expand, read_trace
from radixd.server.replay.workload import WorkloadChoice


def write_trace(path: Path, *lines: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps({"timestamp": 0, **line}) + "\n" for line in lines))
    return path


def test_a_hash_id_is_512_tokens_and_the_last_block_is_cut_off() -> None:
    tokens = expand((0, 7), 700)
    assert tokens.dtype == np.uint32
    assert tokens.tolist() == [*range(512), *range(7 * 512, 7 * 512 + 188)]
    assert expand((2**23,), 2).tolist() == [0, 1]  # modulo 2³²


def test_a_trace_is_read_line_by_line(tmp_path: Path) -> None:
    lines = [{"input_length": 600 + i, "output_length": i, "hash_ids": [0, i + 1]} for i in range(4)]
    trace = write_trace(tmp_path / "trace.jsonl", *lines)
    assert [line.input_length for line in read_trace(trace, 2)] == [600, 601]
    choice = WorkloadChoice(trace, None, decode=True, seed=0)
    workload = choice.open()
    assert len(workload) == 4
    assert workload.output_lengths() == [0, 1, 2, 3]
    assert workload[3].output.size == 3
    assert (workload[3].output == choice.open()[3].output).all()
    assert WorkloadChoice(trace, None, decode=False, seed=0).open()[3].output.size == 0


@pytest.mark.parametrize(
    "line",
    [
        {"input_length": 513, "output_length": 1, "hash_ids": [1]},
        {"input_length": 0, "output_length": 1, "hash_ids": [1]},
        {"output_length": 1, "hash_ids": [1]},
        {"input_length": 5, "output_length": 1, "hash_ids": 1},
    ],
)
def test_a_line_that_is_no_request_is_named(tmp_path: Path, line: dict[str, object]) -> None:
    trace = write_trace(tmp_path / "t", {"input_length": 5, "output_length": 1, "hash_ids": [1]}, line)
    with pytest.raises(ValueError, match="line 2"):
        list(read_trace(trace))


def test_conversations_come_from_their_seed_alone() -> None:
    one, again = (conversation_requests(3, 40, decode=True) for _ in range(2))
    other = conversation_requests(4, 40, decode=True)
    for left, right in zip(one, again, strict=True):
        assert left.prompt.tobytes() == right.prompt.tobytes()
        assert left.output.tobytes() == right.output.tobytes()
        assert left.extra_key == right.extra_key
    assert [item.prompt.tobytes() for item in one] != [item.prompt.tobytes() for item in other]


def test_a_turn_goes_on_from_an_earlier_ones_prompt_and_answer() -> None:
    requests = conversation_requests(0, 100, decode=True)
    told = {request.prompt.tobytes() + request.output.tobytes() for request in requests}
    continued = sum(any(request.prompt.tobytes().startswith(text) for text in told) for request in requests)
    assert continued > 30
    assert {request.extra_key for request in requests} == {b"", ADAPTER}


def test_faults_are_spread_and_never_meet() -> None:
    lengths = [0, 5] * 50
    faults = Faults.choose(lengths, aborts=10, rollbacks=20, preempts=15, seed=1)
    assert [len(chosen) for chosen in (faults.aborts, faults.drafts, faults.preempts)] == [10, 20, 15]
    assert len(faults.aborts | faults.drafts | faults.preempts) == 45
    assert all(lengths[index] for index in faults.drafts | faults.preempts)
    assert Faults.choose(lengths, aborts=10, rollbacks=20, preempts=15, seed=1) == faults
    with pytest.raises(ValueError, match="--rollbacks 51: only 50"):
        Faults.choose(lengths, aborts=0, rollbacks=51, preempts=0, seed=1)
    with pytest.raises(ValueError, match="--preempt 11: only 10"):
        Faults.choose(lengths, aborts=0, rollbacks=40, preempts=11, seed=1)
