"""The pages that `--html` writes, in a real browser: nothing is cut off on a phone, in light and in dark."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.cli.main import main

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

if BROWSER is None and os.environ.get("CI") == "true":
    pytest.fail("CI has Chromium: see .ci/run", pytrace=False)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium: apt-get install chromium")

# Told by the page itself, once it is laid out.
PROBE = """<script>
const of = selector => [...document.querySelectorAll(selector)];
document.body.dataset.found = JSON.stringify({
  overflow: document.documentElement.scrollWidth - window.innerWidth,
  strips: of('svg').map(svg => Math.round(svg.getBoundingClientRect().width)),
  widths: of('svg').map(svg => [...svg.querySelectorAll('rect')]
    .reduce((sum, rect) => sum + rect.getBoundingClientRect().width, 0)),
  read: of('rect.accel-f0').map(rect => getComputedStyle(rect).fill),
  text: getComputedStyle(document.querySelector('.accel')).color,
  back: getComputedStyle(document.querySelector('.accel')).backgroundColor,
  labels: of('svg').map(svg => svg.getAttribute('aria-label')),
});
</script>"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = np.arange(100_000)
    columns = pa.table({"id": rows, "a_column_with_a_name_that_is_long_for_a_phone": rows * 7919 % 100_003})
    path = tmp_path_factory.mktemp("pictures") / "t.parquet"
    pq.write_table(columns, path, row_group_size=50_000, write_page_index=True, data_page_size=8192)
    return path


def seen(page: Path, width: int, folder: Path, *, dark: bool) -> dict[str, Any]:
    """What the browser makes of a page in a window of this width."""
    probed = folder / "probed.html"
    probed.write_text(page.read_text().replace("</body>", f"{PROBE}</body>"))
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    done = subprocess.run(
        [
            str(BROWSER),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={folder / 'profile'}",
            f"--window-size={width},800",
            *scheme,
            "--dump-dom",
            probed.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    match = re.search(r'data-found="([^"]*)"', done.stdout)
    assert match, done.stdout[-500:] + done.stderr[-500:]
    found: dict[str, Any] = json.loads(html.unescape(match[1]))
    return found


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [500, 1200], ids=["phone", "screen"])
def test_explain(file: Path, tmp_path: Path, width: int, dark: bool) -> None:
    page = tmp_path / "page.html"
    assert main(["explain", str(file), "--where", "id = 77000", "--html", str(page)]) == 0
    found = seen(page, width, tmp_path, dark=dark)
    assert found["overflow"] == 0
    assert len(found["strips"]) == 2
    for strip, drawn in zip(found["strips"], found["widths"], strict=True):
        assert strip > width * 0.4
        assert abs(strip - drawn) <= 2
    assert len(found["read"]) == 2
    assert set(found["read"]) == {"rgb(91, 157, 255)" if dark else "rgb(24, 87, 192)"}
    assert found["back"] == ("rgb(21, 24, 28)" if dark else "rgb(255, 255, 255)")
    assert all("1 read" in label for label in found["labels"])


def test_inspect(file: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["inspect", str(file), "--html", str(page)]) == 0
    found = seen(page, 500, tmp_path, dark=False)
    assert found["overflow"] == 0
    assert len(found["strips"]) == 2
    assert all("dictionary-encoded" in label for label in found["labels"])
