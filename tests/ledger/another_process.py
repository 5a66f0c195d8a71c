"""What tests let another process do to a ledger: `python -m tests.ledger.another_process ACTION ADDRESS RUN ...`."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from s3t.ledger import Address, PostgresAddress
from s3t.ledger.locks import hold
from tests.ledger.world import one_of_many, open_ledger

ROOT = Path(__file__).resolve().parents[2]


def start(action: str, address: Address, *arguments: object) -> subprocess.Popen[str]:
    """The process, once it has begun."""
    if isinstance(address, PostgresAddress):
        where = [address.url.render_as_string(hide_password=False), address.schema.removeprefix("s3t_")]
    else:
        where = [str(address), ""]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.ledger.another_process", action, *where, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout.readline() == "begun\n"
    return process


def finish(process: subprocess.Popen[str]) -> None:
    """Let it end."""
    process.communicate(timeout=60)
    assert process.returncode == 0


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=60)


def main() -> None:
    action, where, run, *arguments = sys.argv[1:]
    with closing(open_ledger(PostgresAddress.of(where, run=run) if run else Path(where))) as ledger:
        if action == "hold":
            with hold(ledger.lock(Path(arguments[0]))):
                print("begun", flush=True)
                sys.stdin.readline()
        if action == "accept":
            print("begun", flush=True)
            for number in range(*map(int, arguments)):
                with ledger.writing() as transaction:
                    transaction.accept([one_of_many(number)])
        if action == "die within a transaction":
            with ledger.writing() as transaction:
                transaction.accept([one_of_many(0)])
                print("begun", flush=True)
                sys.stdin.readline()


if __name__ == "__main__":
    main()
