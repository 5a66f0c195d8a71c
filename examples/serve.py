"""A server of the demo's run, with its page. Run by `make serve`; trains the run first if it is not there.

    python examples/serve.py runs/demo

It listens on this machine alone. The token that it makes is revoked when it ends, and expires after a day.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

import digits
import pandas as pd

import s3t
from s3t_server.server import serve
from s3t_server.settings import Settings
from s3t_server.tokens import Access

SCOPES = ["predict", "delete", "operate", "audit"]


def main(run_folder: Path, port: int) -> None:
    if not (run_folder / "run.json").is_file():
        digits.main(run_folder)
    name = f"demo-{secrets.token_hex(3)}"
    with s3t.Run.open(run_folder) as run:
        _, token = Access(run).create(name, scopes=SCOPES, days=1)
        example = present_record(run, run_folder.with_name(run_folder.name + "-data") / "private.parquet")
    try:
        print(f"\nThe page: http://127.0.0.1:{port}/#{token}", flush=True)
        print(f"The token, for the form and for programs: {token}")
        print(f"A record to look up and delete: {example}\nCtrl-C ends it.\n", flush=True)
        # Held above 20 records an hour; another token with the scope operate approves: s3t token create RUN NAME ...
        serve(Settings(runs=(run_folder,), port=port, hold_records=20))
    finally:
        with s3t.Run.open(run_folder) as run:
            Access(run).revoke(name)


def present_record(run: s3t.Run, data: Path) -> str:
    """The id of a record that is still there."""
    ids = [str(each) for each in pd.read_parquet(data, columns=["id"])["id"]]
    return next(each.name for each in run.locate(records=ids) if each.present)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo"), int(os.environ.get("PORT", "8080")))
