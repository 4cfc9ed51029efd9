"""Copies run in order, off the loop; their outcomes come back on it."""

import asyncio
import threading
from concurrent.futures import Future

from radixd.server.pools.copier import Copier, Urgency


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


async def test_what_is_awaited_goes_before_what_is_only_saved() -> None:
    copier = Copier()
    hold, order = threading.Event(), list[str]()
    copier.submit(lambda: hold.wait() and None, lambda error: None)
    for urgency, name in ((Urgency.IDLE, "seal"), (Urgency.SAVING, "save"), (Urgency.AWAITED, "load")):
        copier.submit(lambda name=name: order.append(name), lambda error: None, urgency)  # type: ignore[misc]
    hold.set()
    copier.close()
    assert order == ["load", "save", "seal"]


async def test_work_that_was_only_begun_ends_with_its_future() -> None:
    copier = Copier()
    slow: Future[None] = Future()
    broken: Future[None] = Future()
    ended: list[str] = []
    everything = asyncio.Event()

    def done(name: str, error: str) -> None:
        ended.append(f"{name}: {error}")
        if len(ended) == 3:
            everything.set()

    copier.submit(lambda: slow, lambda error: done("slow", error))
    copier.submit(lambda: broken, lambda error: done("broken", error))
    copier.submit(lambda: None, lambda error: done("quick", error))
    while not ended:  # noqa: ASYNC110 - what it waits for has no event
        await asyncio.sleep(0.001)
    assert ended == ["quick: "]
    broken.set_exception(ValueError("no"))
    slow.set_result(None)
    await everything.wait()
    assert sorted(ended) == ["broken: ValueError: no", "quick: ", "slow: "]
    copier.close()


async def test_what_has_not_begun_can_be_abandoned() -> None:
    copier = Copier()
    hold, begun, ended = threading.Event(), threading.Event(), list[str]()

    def first() -> None:
        begun.set()
        hold.wait()

    copier.submit(first, ended.append)
    while not begun.is_set():  # noqa: ASYNC110 - what it waits for has no event
        await asyncio.sleep(0.001)
    copier.submit(lambda: None, ended.append, Urgency.SAVING)
    copier.abandon("the daemon has shut down")
    assert ended == ["the daemon has shut down"]
    hold.set()
    copier.close()
    await asyncio.sleep(0)
    assert ended == ["the daemon has shut down", ""]


async def test_an_end_waits_only_so_long_for_what_does_not_end() -> None:
    hung, stuck = Copier(), Copier()
    never: Future[None] = Future()
    hung.submit(lambda: never, lambda error: None)
    assert not hung.close(0.05)
    hold = threading.Event()
    stuck.submit(lambda: hold.wait() and None, lambda error: None)
    assert not stuck.close(0.05)
    hold.set()
    never.set_result(None)
    assert Copier().close(60)


async def test_before_a_failure_is_told_somebody_may_look_what_has_failed() -> None:
    copier, told, everything = Copier(), list[str](), asyncio.Event()
    copier.before_failure = lambda: told.append("looked")

    def fail() -> None:
        raise ValueError("no")

    def last(error: str) -> None:
        told.append(error)
        everything.set()

    copier.submit(lambda: None, told.append)
    copier.submit(fail, last)
    await everything.wait()
    assert told == ["", "looked", "ValueError: no"]
    assert copier.close(60)
