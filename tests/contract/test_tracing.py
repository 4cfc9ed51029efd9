"""The spans that calls leave, and that none of a client's words is in them."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from radixd.server.cache.refusal import Reason
from radixd.server.cli import main
from radixd.v1 import cache_pb2 as pb
from tests.contract.caller import Caller
from tests.contract.refusals import refused
from tests.contract.service import PAGES, LedgerPool, Service
from tests.sequences import seq


@pytest.fixture
def exported() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
async def service(tmp_path: Path, exported: InMemorySpanExporter) -> AsyncIterator[Service]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    pool, tracer = LedgerPool("main", PAGES), provider.get_tracer("test")
    async with Service(tmp_path / "radixd.sock", pool, tracer=tracer) as service:
        yield service


def only(exported: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exported.get_finished_spans()
    return span


async def test_a_batch_is_a_span_with_its_counts(caller: Caller, exported: InMemorySpanExporter) -> None:
    await caller.say(pb.Match(tokens=seq("A")), pb.Match(tokens=seq("B")), pb.Acquire(tokens=seq("A")))
    span = only(exported)
    assert span.name == "batch"
    assert dict(span.attributes or {}) == {
        "radixd.pool": "main",
        "radixd.session": caller.id,
        "radixd.seq": 1,
        "radixd.operations": 3,
        "radixd.operations.match": 2,
        "radixd.operations.acquire": 1,
    }
    assert span.status.status_code is StatusCode.UNSET


async def test_a_refused_call_says_why(service: Service, caller: Caller, exported: InMemorySpanExporter) -> None:
    request = pb.AcquireRequest(call=caller.call(), acquire=pb.Acquire(lease_id=99))
    with refused(Reason.NO_LEASE):
        await service.cache.Acquire(request)
    span = only(exported)
    assert span.name == "acquire"
    assert span.attributes is not None
    assert span.attributes["radixd.reason"] == "NO_LEASE"
    assert span.status.status_code is StatusCode.ERROR


def test_an_exporter_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "carrier-pigeon")
    monkeypatch.setattr("radixd.server.log_lines.set_up_log", lambda kind: None)
    flags = ("--socket", str(tmp_path / "r.sock"), "--device", "meta", "--geometry", "tiny", "--tokens", "640")
    assert main(["serve", "--tracing", "otel", *flags]) == 1
    error = capsys.readouterr().err
    assert "no exporter 'carrier-pigeon' is installed, there are: console" in error
    assert "pip install opentelemetry-exporter-otlp" in error


def test_the_environment_chooses_the_exporter() -> None:
    code = "from radixd.server.tracing import Tracing; it = Tracing(); it.tracer.start_span('batch').end(); it.close()"
    environment = os.environ | {"OTEL_TRACES_EXPORTER": "console", "OTEL_SERVICE_NAME": "node-7"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    span = json.loads(done.stdout)
    assert (span["name"], span["resource"]["attributes"]) == ("batch", {"service.name": "node-7"})


def test_a_daemon_without_spans_does_not_load_opentelemetry() -> None:
    code = "import sys, radixd.server.daemon, radixd.server.cli.serve; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
