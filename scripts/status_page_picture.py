"""Takes docs/images/status-page.png of a running daemon: `scripts/status_page_picture.py http://127.0.0.1:9464`."""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.e2e.browser import Browser, NoBrowser, find_chromium

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "status-page.png"
HEIGHT = 1180
RATES_SECONDS = 3.0
"""Until the page has rates to show."""


def main(url: str) -> int:
    """Write the picture; 1 where there is no browser to take it with."""
    try:
        program = find_chromium()
    except NoBrowser as reason:
        print(f"no Chromium: {reason}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(program, Path(profile))
        browser.prefer("light")
        browser.open(url)
        time.sleep(RATES_SECONDS)
        PICTURE.parent.mkdir(exist_ok=True)
        browser.screenshot(PICTURE, HEIGHT)
        browser.close()
    print(PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
