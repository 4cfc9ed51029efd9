"""The status page of a real daemon in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from radixd.client import Client, Session
from radixd.server.cache.page_map import PageState
from radixd.v1 import admin_pb2
from tests.e2e.browser import Browser, NoBrowser, find_chromium
from tests.e2e.conftest import StartDaemon
from tests.e2e.daemon_process import MODEL, PATIENCE_S, DaemonProcess, eventually
from tests.e2e.scraped import metrics_url

OWNERS = ("free", "evictable", "protected", "leased", "retired")
P = 64


@pytest.fixture(scope="session")
def chromium() -> str:
    try:
        return find_chromium()
    except NoBrowser as reason:
        pytest.skip(f"no Chromium: {reason}")


@pytest.fixture
def browser(chromium: str, tmp_path: Path) -> Iterator[Browser]:
    browser = Browser(chromium, tmp_path / "profile")
    yield browser
    browser.close()


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> DaemonProcess:
    return start_daemon("--metrics", "127.0.0.1:0", "--host-tokens", "6400", "--free-target-pages", "0").serving()


@pytest.fixture
def session(daemon: DaemonProcess) -> Iterator[Session]:
    with Client(daemon.socket) as client, client.open_session(model=MODEL, name="engine-0") as session:
        yield session


def address_of(daemon: DaemonProcess) -> str:
    return metrics_url(daemon).removesuffix("/metrics")


def tokens(length: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**32, length, dtype=np.uint32)


def ledger(daemon: DaemonProcess) -> dict[str, int]:
    device = daemon.admin.Occupancy(admin_pb2.OccupancyRequest(), timeout=PATIENCE_S).pools[0].device
    return {owner: getattr(device, owner) for owner in OWNERS}


def legend(browser: Browser) -> dict[str, int]:
    script = """Object.fromEntries(
        [...document.querySelectorAll('[data-tier="device"] [data-owner]')].map(
            (item) => [item.dataset.owner, Number(item.querySelector("b").textContent.replaceAll(",", ""))]))"""
    shown: dict[str, int] = browser.evaluate(script)
    return shown


def drawn(browser: Browser) -> dict[str, int]:
    """How many cells of the device's picture have each owner's colour in their middle."""
    script = """(() => {
        const canvas = document.querySelector('[data-tier="device"] canvas');
        const palette = paletteOf(canvas.names);
        const cell = canvas.width / canvas.columns;
        const image = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const pixels = new Uint32Array(image.data.buffer);
        const counts = {};
        for (let page = 0; page < canvas.states.length; page++) {
            const x = (page % canvas.columns) * cell, y = Math.floor(page / canvas.columns) * cell;
            const middle = Math.floor(cell / 2) - (cell > 1 ? 1 : 0);
            const state = palette.indexOf(pixels[(y + middle) * canvas.width + x + middle]);
            counts[state] = (counts[state] ?? 0) + 1;
        }
        return counts;
    })()"""
    counts: dict[str, int] = browser.evaluate(script)
    return {PageState(int(state)).name.lower(): count for state, count in counts.items()}


def shown_like(browser: Browser, expected: dict[str, int]) -> None:
    """The page comes to show `expected` as numbers, and as cells of its picture, page 0 beside them."""
    eventually(lambda: legend(browser) == expected)
    cells = {owner: count for owner, count in expected.items() if count}
    assert drawn(browser) == cells | {"system": 1}


def test_it_shows_what_occupancy_says_and_follows(daemon: DaemonProcess, session: Session, browser: Browser) -> None:
    first = session.acquire(tokens(10 * P, seed=1))
    first.insert(written=10 * P)
    first.release()
    session.step(launched=1, completed=0)
    second = session.acquire(tokens(10 * P, seed=1), max_tokens=4 * P, allocate_to=7 * P, reserve_to=9 * P)
    third = session.acquire(tokens(5 * P, seed=2))
    third.release()  # a step is in flight, so its pages are retired
    expected = ledger(daemon)
    assert all(expected.values()), expected

    browser.open(address_of(daemon))
    browser.eventually("document.querySelector('#health').textContent === 'serving'")
    shown_like(browser, expected)
    (known,) = daemon.admin.ListSessions(admin_pb2.ListSessionsRequest(), timeout=PATIENCE_S).sessions
    rows = "[...document.querySelectorAll('[data-part=\"{}\"] tbody tr')].map((row) => row.innerText.split('\\t'))"
    assert browser.evaluate(rows.format("sessions"))[0][:2] == [str(known.session_id), "engine-0"]
    (lease,) = browser.evaluate(rows.format("leases"))
    assert lease[:3] == [str(known.session_id), str(second.lease_id), "active"]
    top = browser.evaluate(rows.format("by_hits"))[0]
    assert top[2:6] == [str(4 * P), "4", "0", "1"]  # the prefix that was hit ends at its token 256
    bars = "[...document.querySelectorAll('[data-part=\"histogram\"] li')].map((item) => item.innerText.split('\\n'))"
    assert [bar for bar in browser.evaluate(bars) if len(bar) > 1] == [["2", "≤ 0"], ["1", "≤ 256"]]

    session.step(launched=1, completed=1)
    second.release()
    after = ledger(daemon)
    assert (after["retired"], after["protected"], after["leased"]) == (0, 0, 0)
    shown_like(browser, after)
    browser.eventually("document.querySelector('[data-tile=\"tokens requested\"]').textContent.includes('/s')")
    assert browser.errors == []


def test_markup_in_a_clients_name_is_text(daemon: DaemonProcess, browser: Browser) -> None:
    name = """</td><img src=x onerror="document.title='owned'"><script>document.title='owned'</script>&amp;\u202e"""
    opened = daemon.open_session(name)
    browser.open(address_of(daemon))
    browser.eventually("document.querySelector('[data-part=\"sessions\"] td') !== null")
    assert browser.evaluate("document.querySelector('[data-part=\"sessions\"] td:nth-child(2)').textContent") == name
    assert browser.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert browser.evaluate("document.title") == "radixd"
    assert browser.errors == []
    assert opened.session_id


def test_it_draws_200_000_pages(start_daemon: StartDaemon, browser: Browser) -> None:
    daemon = start_daemon("--metrics", "127.0.0.1:0", "--tokens", str(200_000 * P)).serving()
    with Client(daemon.socket) as client, client.open_session(model=MODEL) as session:
        for seed in range(40):
            lease = session.acquire(tokens(2_000 * P, seed))
            lease.insert(written=2_000 * P)
            if seed % 2:
                lease.release()
        expected = ledger(daemon)
        assert sum(expected.values()) == 200_000
        assert (expected["protected"], expected["evictable"]) == (40_000, 40_000)
        browser.open(address_of(daemon))
        shown_like(browser, expected)
    assert browser.errors == []


def test_a_daemon_that_is_gone_is_seen_to_be(daemon: DaemonProcess, browser: Browser) -> None:
    browser.open(address_of(daemon))
    browser.eventually("document.querySelector('#health').textContent === 'serving'")
    daemon.process.kill()
    browser.eventually("document.querySelector('#health').textContent === 'no answer'")
    assert browser.evaluate("document.querySelector('#trouble').hidden") is False


def test_a_picture_of_it_is_not_blank(daemon: DaemonProcess, browser: Browser, tmp_path: Path) -> None:
    browser.open(address_of(daemon))
    browser.eventually("document.querySelector('canvas[aria-label]') !== null")
    pictures = {}
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        browser.screenshot(tmp_path / f"{scheme}.png", height=900)
        pictures[scheme] = (tmp_path / f"{scheme}.png").read_bytes()
    assert all(len(picture) > 10_000 for picture in pictures.values())
    assert pictures["light"] != pictures["dark"]
