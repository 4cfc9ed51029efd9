"""The start-up self-test: another process attaches to each pool, and both must see what the other has written."""

import asyncio
import hashlib
import json
import logging
import sys
import time
from concurrent.futures import Future
from contextlib import suppress
from os import urandom
from subprocess import PIPE

import numpy as np

from radixd.gpu_pool.handle import HOST_KINDS
from radixd.gpu_pool.layout import Layout
from radixd.server.attach import AttachServer
from radixd.server.cache.session import Dedup
from radixd.server.pools.pool import Pool
from radixd.server.sessions.opening import Opening
from radixd.server.sessions.registry import SessionRegistry
from radixd.server.sessions.served_session import ServedSession

log = logging.getLogger(__name__)

PROBE = (sys.executable, "-P", "-m", "radixd.client.attach_probe")
PATIENCE_SECONDS = 60.0
"""For one pool, on a machine that starts everything at once."""


class SelfTest:
    """Runs the probe, which is started early: it imports what it needs while memory is allocated."""

    def __init__(self, registry: SessionRegistry[Pool], attach: AttachServer) -> None:
        self._registry = registry
        self._attach = attach
        self._probe: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the probe. Raises OSError."""
        self._probe = await asyncio.create_subprocess_exec(*PROBE, stdin=PIPE, stdout=PIPE)

    async def trouble(self, pool: Pool) -> str:
        """What is wrong with the pool's memory as another process maps it; "" if nothing is. Page 0 alone is written.

        The probe attaches as every worker does, in the name of a session that lives as long as this. One that has not
        answered, or has died, is replaced: it says nothing about the next pool.
        """
        begun = time.monotonic()
        if self._probe is None or self._probe.returncode is not None:
            await self.start()
        session = self._registry.open(
            Opening(pool.name, "radixd self-test", urandom(16), b"self-test", b"", None, Dedup.KEEP)
        )
        try:
            with self._attach.admitting(session.id):
                trouble = await asyncio.wait_for(self._compare(pool, session), PATIENCE_SECONDS)
        except TimeoutError:
            trouble = f"its GPU, or a process that attaches, has not answered for {PATIENCE_SECONDS:g} s"
            await self.stop()
        finally:
            self._registry.close(session.id, session.secret, self._registry.epoch, completed=0)
        seconds, ids = time.monotonic() - begun, {"pool": pool.name}
        log.info("pool %s: self-test: %s, %.2f s", pool.name, trouble or "well", seconds, extra=ids)
        return trouble

    async def stop(self) -> None:
        """End the probe, whatever it is doing."""
        if self._probe is not None:
            if self._probe.returncode is None:
                self._probe.kill()
            await self._probe.wait()

    async def _compare(self, pool: Pool, session: ServedSession) -> str:
        import torch

        assert pool.memory is not None
        memory = pool.memory
        firsts = [device.buffer[: _first_run(pool.layout)] for device in memory.devices]
        written = [urandom(first.numel()) for first in firsts]
        left: list[bytes] = []

        def write() -> Future[None]:
            for first, content in zip(firsts, written, strict=True):
                first.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
            return memory.probe()

        def read_and_clear() -> None:
            for first in firsts:
                left.append(first.cpu().numpy().tobytes())
                first.zero_()

        if error := await pool.beside(write):
            return f"writing to it fails: {error}"
        error, found = await self._ask(pool, session, firsts[0].numel())
        if error:
            return f"attaching to it fails: {error}"
        if error := await pool.beside(read_and_clear):
            return f"reading it fails: {error}"
        for device, content in enumerate(written):
            if found[device] != hashlib.sha256(content).hexdigest():
                return f"device {device}: who attaches reads other bytes than the daemon has written"
            if left[device] != (~np.frombuffer(content, dtype=np.uint8)).tobytes():
                return f"device {device}: the daemon reads other bytes than who attached has written"
        return ""

    async def _ask(self, pool: Pool, session: ServedSession, nbytes: int) -> tuple[str, list[str]]:
        """(error, digests of what the probe has found on each device), of which one is empty."""
        probe = self._probe
        assert probe is not None
        assert probe.stdin is not None
        assert probe.stdout is not None
        ticket = {
            "attach_socket": self._registry.attach_socket,
            "session_id": session.id,
            "secret": session.secret.hex(),
            "epoch": self._registry.epoch,
            "geometry_fingerprint": pool.geometry.fingerprint.hex(),
        }
        by = "mmap" if pool.device_kind in HOST_KINDS else "torch"
        line = b""
        with suppress(ConnectionError):
            probe.stdin.write(json.dumps({"ticket": json.dumps(ticket), "nbytes": nbytes, "by": by}).encode() + b"\n")
            await probe.stdin.drain()
            line = await probe.stdout.readline()
        if not line:
            return f"the process that attaches has ended with status {await probe.wait()}", []
        answer = json.loads(line)
        return answer.get("error", ""), answer.get("found", [])


def _first_run(layout: Layout) -> int:
    """How many of the first bytes are page 0's, which padding tokens write and nobody reads."""
    geometry = layout.geometry
    if layout.kind == "page_first":
        return geometry.bytes_per_page
    return geometry.bytes_per_component_page(geometry.components[0])
