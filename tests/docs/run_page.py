"""Runs the blocks of one page in order, in this process and its directory: `python run_page.py page.json
out.json`.

Python blocks share one namespace, as a prompt has it; shell blocks run by `sh -e`. What each printed is
written out; the first that fails ends the run with a traceback that names the page's own lines.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def run_page(name: str, blocks: list[dict[str, Any]]) -> list[str]:
    """What each block printed."""
    printed: list[str] = []
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        if block["shell"]:
            ran = subprocess.run(
                ["sh", "-e", "-c", block["code"]], capture_output=True, text=True, check=False
            )
            if ran.returncode != 0:
                raise SystemExit(f"{name}, line {block['line']}: status {ran.returncode}\n{ran.stderr}")
            printed.append(ran.stdout)
            continue
        # Leading newlines make a traceback's line numbers those of the page.
        code = "\n" * (block["line"] - 1) + block["code"]
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(code, name, "exec"), names)  # noqa: S102 (the page's own code)
        printed.append(out.getvalue())
    return printed


if __name__ == "__main__":
    page = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps(run_page(page["name"], page["blocks"])))
