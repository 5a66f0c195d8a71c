"""Requests for deletion that a server holds until an operator approves or refuses them. None is ever dropped.

The ledger keeps the tokens of a held request's names, so carrying it out reads the names of every slice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from s3t.aftermath import NOTHING_CHANGED, after_refusal
from s3t.deletion.acceptance import losses_of
from s3t.deletion.deleter import Outcome
from s3t.deletion.holding import Limits, why_held
from s3t.deletion.request import Request
from s3t.errors import InputError
from s3t.ledger import Held, Snapshot, Transaction
from s3t.partition import Place
from s3t.records.requests import requested, requested_names
from s3t.run.parts import Parts

_MOST_REASON = 500


@dataclass(frozen=True)
class Approvals:
    """Held requests of one run. Replicas that share the ledger share them."""

    parts: Parts

    def all(self) -> tuple[Held, ...]:
        """Every held request, the newest first; those that were decided included."""
        with self.parts.ledger.reading() as transaction:
            return tuple(transaction.held.all())

    def waiting(self) -> tuple[Held, ...]:
        """Those that wait for a decision, the newest first."""
        return tuple(held for held in self.all() if held.state == "held")

    def find(self, id: str) -> Held | None:
        """The held request of an id."""
        with self.parts.ledger.reading() as transaction:
            return transaction.held.find(id)

    def admit(
        self,
        *,
        records: Sequence[str | int],
        subjects: Sequence[str | int],
        key: str | None,
        strict: bool,
        caller: str,
        limits: Limits,
    ) -> Held | None:
        """Hold a request for deletion if it is over a limit. Else count it, and return None: it may be carried out.

        One that is made again, with its key or while it waits, is held once.

        Args:
            records: ids, as for `Run.delete`; `subjects`, `key` and `strict`, too.
            subjects: people.
            key: the idempotency key.
            strict: a request with an unknown name is not held: `Run.delete` refuses it.
            caller: name of the caller's token.
            limits: of the server.

        Raises:
            InputError: as `Run.delete`.
        """
        if limits == Limits(records=None, share=None):
            return None
        names = requested_names(records, subjects)
        key = None if key is None else requested("the idempotency key", [key])[0]
        request = Request.of(self.parts.secret, **names, key=key)
        with after_refusal(NOTHING_CHANGED), self.parts.ledger.writing() as transaction:
            if request.key is not None and transaction.history.request(request.key) is not None:
                return None
            if (same := _held_before(transaction, caller, request)) is not None:
                return same
            located = transaction.locate(records=request.records.keys(), subjects=request.subjects.keys())
            found = {token for row in located.rows for token in (row.token, row.subject)} | located.gone.keys()
            if strict and not found >= request.names.keys():
                return None
            losses = _by_shard(losses_of(located.rows))
            why = why_held(
                limits,
                losses=losses,
                present=_present(transaction.snapshot()),
                rates=transaction.held.rates(caller),
            )
            if why is None:
                transaction.held.note_admitted(caller, losses)
                return None
            return transaction.held.add(
                asked_by=caller,
                why=why,
                count=sum(losses.values()),
                request=request.key,
                content=request.content,
                records=request.records.keys(),
                subjects=request.subjects.keys(),
            )

    def impact(self, held: Held) -> Outcome:
        """What a request that waits would do now, as a dry run says it. Errors as `Run.delete`."""
        return self.parts.deleter.delete(self._request(held), dry_run=True)

    def approve(self, id: str, *, by: str) -> Held:
        """Approve a held request, and carry it out. Approved again, it goes on where a crash stopped it.

        Args:
            id: of the request.
            by: name of who approves: somebody else than who asked.

        Raises:
            InputError: there is no such request, it was refused, or `by` asked for it.
        """
        self.parts.check_changeable()
        with after_refusal(NOTHING_CHANGED), self.parts.ledger.writing() as transaction:
            held = _known(id, transaction.held.find(id))
            if held.state == "refused":
                raise InputError("the approval", f"{id} was refused by {held.decided_by}; ask for the deletion anew")
            if held.state == "held":
                if by == held.asked_by:
                    raise InputError("the approval", f"{by} asked for {id}: somebody else has to approve it")
                transaction.held.decide(id, by=by, approved=True)
        return self._carry_out(held)

    def refuse(self, id: str, *, by: str, reason: str) -> Held:
        """Refuse a held request: nothing is deleted, and its names are forgotten.

        Args:
            id: of the request.
            by: name of who refuses.
            reason: in words, which are kept; without names of people.

        Raises:
            InputError: there is no such request, it was approved, or the reason is empty or too long.
        """
        problems = [] if 0 < len(reason.strip()) <= _MOST_REASON else [f"reason: give 1 to {_MOST_REASON} characters"]
        with after_refusal(NOTHING_CHANGED), self.parts.ledger.writing() as transaction:
            held = _known(id, transaction.held.find(id))
            if held.state in ("approved", "done"):
                problems.append(f"{id} was approved by {held.decided_by}")
            if problems:
                raise InputError("the refusal", problems)
            transaction.held.decide(id, by=by, approved=False, reason=reason.strip())
            return _known(id, transaction.held.find(id))

    def carry_out_approved(self) -> None:
        """Go on with approved requests that a crash stopped."""
        for held in self.all():
            if held.state == "approved":
                self._carry_out(held)

    def _carry_out(self, held: Held) -> Held:
        self.parts.deleter.delete(self._request(held))
        return _known(held.id, self.find(held.id))

    def _request(self, held: Held) -> Request:
        with self.parts.ledger.reading() as transaction:
            held = _known(held.id, transaction.held.find(held.id))  # as it is now: another may have carried it out
            records, subjects = transaction.held.names_of(held)
        return Request(
            records=dict.fromkeys(records, ""),
            subjects=dict.fromkeys(subjects, ""),
            key=held.request,
            content=held.content,
            received=time.monotonic() - max(0.0, time.time() - held.asked_at),
            held=held.id,
        )


def _held_before(transaction: Transaction, caller: str, request: Request) -> Held | None:
    """The same request, if it was held before, and is not done."""
    same = transaction.held.same(caller, request=request.key, content=request.content)
    if same is None or same.state == "done":
        return None
    if same.content != request.content:
        reason = "was used for a request with other names; use a new key for a new request"
        raise InputError("the idempotency key", reason)
    return same


def _known(id: str, held: Held | None) -> Held:
    if held is None:
        raise InputError("the request", f"none was held under the id {id!r}; s3t deletions held RUN lists them")
    return held


def _by_shard(losses: Mapping[Place, int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for place, count in losses.items():
        found[place.shard] = found.get(place.shard, 0) + count
    return found


def _present(snapshot: Snapshot) -> dict[int, int]:
    """Records of each shard."""
    return _by_shard({place: state.records for place, state in snapshot.slices.items()})
