"""Copies run in order, off the loop; their outcomes come back on it."""

import asyncio
import threading

from radixd.server.copier import Copier


async def test_outcomes_come_back_in_order_on_the_loop() -> None:
    copier = Copier()
    loop_thread = threading.get_ident()
    seen: list[tuple[str, str]] = []
    finished = asyncio.Event()

    def done(error: str) -> None:
        assert threading.get_ident() == loop_thread
        seen.append(("done", error))
        if len([kind for kind, _ in seen if kind == "done"]) == 3:
            finished.set()

    def work(name: str) -> None:
        assert threading.get_ident() != loop_thread
        seen.append(("work", name))

    def fail() -> None:
        raise ValueError("slot 3 is taken")

    copier.submit(lambda: work("a"), done)
    copier.submit(fail, done)
    copier.submit(lambda: work("b"), done)
    await finished.wait()
    copier.close()
    assert [name for kind, name in seen if kind == "work"] == ["a", "b"]
    assert [error for kind, error in seen if kind == "done"] == ["", "ValueError: slot 3 is taken", ""]


async def test_close_finishes_what_was_submitted() -> None:
    copier = Copier()
    ran: list[int] = []
    for i in range(10):
        copier.submit(lambda i=i: ran.append(i), lambda error: None)  # type: ignore[misc]
    copier.close()
    assert ran == list(range(10))
