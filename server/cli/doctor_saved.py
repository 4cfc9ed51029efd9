"""Scrapes: saved ones, and one of a running daemon."""

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from radixd.server.cli.daemon_channel import TIMEOUT_S, CommandError
from radixd.server.cli.doctor_reading import Reading, check_same_daemon, chosen_pools
from radixd.server.doctor.scrape import Scrape, ScrapeError

MAX_BYTES = 64 * 2**20


def is_url(text: str) -> bool:
    """Whether it is an address rather than a file's name: a URL, or HOST:PORT as `radixd serve --metrics` takes it."""
    return "://" in text or bool(re.fullmatch(r"[\w.\[\]:-]+:\d{1,5}", text))


def read_saved(names: Sequence[str], pool: str) -> Reading:
    """One scrape, counted since its daemon's start, or what happened between two."""
    if len(names) > 2:
        raise CommandError(
            f"--metrics: {len(names)} files; give one scrape, or two of the same daemon, the older first"
        )
    scrapes = [_saved(Path(name)) for name in names]
    before, now = scrapes[0] if len(scrapes) == 2 else None, scrapes[-1]
    span = "counted since the daemon's start"
    if before is not None:
        check_same_daemon(before, now)
        span = f"counted since {names[0]}"
    return Reading(f"{names[-1]}, {span}", chosen_pools(now, pool), now, before, None)


def scrape(url: str) -> Scrape:
    """A running daemon's metrics. It is never asked by way of a proxy."""
    url = url if "://" in url else f"http://{url}/metrics"
    if not url.startswith("http://"):
        raise CommandError(f"--metrics: {url[:64]!r} is no http:// address")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=TIMEOUT_S) as reply:
            content: bytes = reply.read(MAX_BYTES)
        return Scrape.parse(content.decode())
    except ScrapeError as error:
        raise CommandError(f"{url}: {error}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise CommandError(
            f"no metrics at {url} ({reason}): the daemon's log says where they are; name it with --metrics HOST:PORT"
        ) from error


def _saved(path: Path) -> Scrape:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ScrapeError(f"larger than {MAX_BYTES} bytes: this is no scrape")
        return Scrape.parse(content.decode())
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: this is no text") from error
    except ScrapeError as error:
        raise CommandError(f"{path}: {error}") from error
