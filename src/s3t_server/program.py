"""The program `s3t`: the library's commands, and those of its server."""

from __future__ import annotations

from s3t.cli import app

_OWN = ("serve", "token", "deletions")
COMMANDS = {**app.COMMANDS, **{name: f"s3t_server.commands.{name}" for name in _OWN}}


def main() -> None:
    app.main(COMMANDS)
