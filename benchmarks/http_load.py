"""Requests over many connections to a server, and deletions beside them, timed from outside.

    python -m benchmarks.http_load JOB.json

The job says what to send and where; stdout gets one JSON document of counts and times. It is a process of its own, so
that it takes nothing of the server's Python.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np


@dataclass(frozen=True, kw_only=True)
class Job:
    """Requests to make."""

    url: str
    bodies: str
    """File of JSON lines, one body each; they are sent in turn, from the first on when they end."""
    requests: int
    connections: int = 32
    token: str = ""
    path: str = "/v1/predict"
    delete: Sequence[str] = ()
    """Ids to delete meanwhile, evenly over the requests, one after another."""


@dataclass(frozen=True)
class Answer:
    """An answer as the client saw it; times of `time.monotonic`."""

    sent: float
    received: float
    status: int
    generation: int | None
    """Generation in the header S3T-Generation."""
    in_body: int | None
    """Generation in the body."""


@dataclass(frozen=True)
class Deletion:
    """A deletion as the client saw it."""

    answered: float
    status: int
    id: int | None
    state: str | None


async def run(job: Job) -> dict[str, Any]:
    """Send all, and count."""
    bodies = Path(job.bodies).read_text().splitlines()
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {job.token}"} if job.token else {})
    turns, answers, deletions = iter(range(job.requests)), list[Answer](), list[Deletion]()
    connector = aiohttp.TCPConnector(limit=job.connections + 1)
    timeout = aiohttp.ClientTimeout(total=120.0)
    async with aiohttp.ClientSession(job.url, headers=headers, connector=connector, timeout=timeout) as session:
        began = time.monotonic()
        asking = [_ask(session, job.path, bodies, turns, answers) for _ in range(job.connections)]
        await asyncio.gather(*asking, _delete(session, job, answers, deletions))
        seconds = time.monotonic() - began
    return {"seconds": seconds, **counted(answers, deletions)}


async def _ask(
    session: aiohttp.ClientSession, path: str, bodies: Sequence[str], turns: Iterator[int], answers: list[Answer]
) -> None:
    for turn in turns:
        sent = time.monotonic()
        try:
            async with session.post(path, data=bodies[turn % len(bodies)]) as answer:
                document = await answer.read()
                received = time.monotonic()
                named = answer.headers.get("S3T-Generation")
                inside = json.loads(document).get("generation") if named is not None else None
                answers.append(Answer(sent, received, answer.status, None if named is None else int(named), inside))
        except (aiohttp.ClientError, TimeoutError):
            answers.append(Answer(sent, time.monotonic(), 0, None, None))


async def _delete(
    session: aiohttp.ClientSession, job: Job, answers: Sequence[Answer], deletions: list[Deletion]
) -> None:
    for number, record in enumerate(job.delete):
        while len(answers) < number * job.requests / len(job.delete):
            await asyncio.sleep(0.001)
        async with session.post("/v1/deletions", json={"records": [record]}) as answer:
            told = await answer.json()
            deletions.append(Deletion(time.monotonic(), answer.status, told.get("id"), told.get("state")))


def counted(answers: Sequence[Answer], deletions: Sequence[Deletion]) -> dict[str, Any]:
    """Errors, stale and mixed answers, and latencies in milliseconds.

    An answer is stale if it was asked for after a deletion was told to be effective, and is of a generation before.
    """
    told = sorted((each.answered, each.id) for each in deletions if each.state in ("effective", "erased") and each.id)
    newest = list(itertools.accumulate((id or 0 for _, id in told), max, initial=0))
    times = [at for at, _ in told]
    known = [newest[place] for place in np.searchsorted(times, [answer.sent for answer in answers])]
    last = max((answer.received for answer in answers), default=0.0)
    latency = np.array([answer.received - answer.sent for answer in answers if answer.status == 200]) * 1000
    return {
        "answers": len(answers),
        "errors": sum(answer.status != 200 for answer in answers),
        "stale": sum(
            answer.generation is not None and answer.generation < least
            for answer, least in zip(answers, known, strict=True)
        ),
        "mixed": sum(answer.generation != answer.in_body for answer in answers),
        "generations": len({answer.generation for answer in answers} - {None}),
        "ms": {str(share): float(np.percentile(latency, share)) for share in (50, 90, 99)} if len(latency) else {},
        "latencies": np.sort(latency).round(2).tolist(),
        "deletions": len(deletions),
        "deletions_refused": sum(each.status != 202 for each in deletions),
        "deletions_not_effective_when_answered": sum(each.state == "accepted" for each in deletions),
        "deletions_after_last_answer": sum(each.answered > last for each in deletions),
    }


def main() -> None:
    job = Job(**json.loads(Path(sys.argv[1]).read_text()))
    print(json.dumps(asyncio.run(run(job))))


def written(job: Job, folder: Path) -> Path:
    """The file of a job."""
    path = folder / "job.json"
    path.write_text(json.dumps(asdict(job)))
    return path


if __name__ == "__main__":
    main()
