"""Pictures of the page for README and docs, of the demo's run behind a real server. Run by `make pictures`.

    python examples/page_pictures.py runs/demo

Deletes and repairs in a clone, so the run stays as it is. Needs chromium.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import digits
import pandas as pd
from PIL import Image

import s3t
from s3t_server.tokens import SCOPES, Access
from testing.browser import browser

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
WIDTH, HEIGHT = 1180, 940
MOST_BYTES = 200_000


def main(run_folder: Path) -> None:
    if not (run_folder / "run.json").is_file():
        digits.main(run_folder)
    ids = list(pd.read_parquet(run_folder.with_name(run_folder.name + "-data") / "private.parquet").id)
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "digits"
        with s3t.Run.clone(run_folder, clone) as run:
            present = [each.name for each in run.locate(records=ids) if each.present]
            tokens = {name: Access(run).create(name, scopes=list(SCOPES))[1] for name in ("ops", "support app")}
        with serving(clone) as address, browser() as chromium:
            with s3t.Client(address, tokens["support app"]) as client:
                for record in present[:3]:
                    client.delete(records=[record])
                client.delete(records=present[3:12])  # held: over the server's limit
            for scheme in ("light", "dark"):
                take(chromium, address, tokens["ops"], present[12:14], scheme)


@contextmanager
def serving(run: Path) -> Iterator[str]:
    """The address of `s3t serve`, as a user starts it."""
    command = [sys.executable, "-m", "s3t", "serve", str(run), "--port", "0", "--no-repair", "--hold-records", "5"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            lines: list[str] = []
            for line in process.stderr or ():
                lines.append(line)
                if found := re.search(r"listening at (http://\S+)", line):
                    # Its log goes on, and a full pipe would stop the server.
                    threading.Thread(target=lambda: lines.extend(process.stderr or ()), daemon=True).start()
                    yield found[1]
                    break
            else:
                raise SystemExit("the server did not start:\n" + "".join(lines))
        finally:
            process.terminate()


def take(chromium: Any, address: str, token: str, names: list[str], scheme: str) -> None:
    page = chromium.new_page(color_scheme=scheme, viewport={"width": WIDTH, "height": HEIGHT}, reduced_motion="reduce")
    page.goto(f"{address}/#{token}")
    page.locator("#connection[data-state=live]").wait_for()
    write(page.screenshot(), f"page-{scheme}.png")
    if scheme == "light":
        page.get_by_label("Ids, one a line").fill("\n".join(names))
        page.get_by_role("button", name="Look up").click()
        page.get_by_role("button", name="Delete for good").wait_for()
        page.evaluate("document.activeElement.blur()")  # its ring would be cut off
        write(page.locator("#desk").screenshot(), "page-delete.png")
    page.close()


def write(picture: bytes, name: str) -> None:
    """Write a picture with as many colours as it needs; a page of few colours gets much smaller."""
    out = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(
        out, "png", optimize=True
    )
    if len(out.getvalue()) > MOST_BYTES:
        raise SystemExit(f"{name} has {len(out.getvalue())} bytes, more than {MOST_BYTES}")
    (PICTURES / name).write_bytes(out.getvalue())
    print(f"{PICTURES / name}: {len(out.getvalue()) // 1024} KiB")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo"))
