"""Requests for deletion that a server holds until an operator approves or refuses them. None is ever dropped.

The ledger keeps the tokens of a held request's names, so carrying it out reads the names of every slice.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from s3t.aftermath import APPROVED, NOTHING_CHANGED, OUT_OF_USE, after_refusal
from s3t.deletion.acceptance import Request
from s3t.deletion.grouping import Grouped
from s3t.deletion.holding import Limits, why_held
from s3t.deletion.protocol import Outcome
from s3t.errors import DecidedError, FsyncError, InputError, OwnRequestError, S3TError, TooManyHeldError
from s3t.events import Progress, silent
from s3t.ledger import Transaction
from s3t.records.requests import requested, requested_names
from s3t.results.base import utc
from s3t.results.changes import Deletion
from s3t.results.serving import Approved, Held
from s3t.run.deleting import deletion_of, repaired
from s3t.run.parts import Parts
from s3t.run.reporting import outage_of

MOST_WAITING = 100
"""Requests of one caller that may wait for a decision: each keeps its names in the ledger."""
MOST_REASON = 500
"""Characters of the reason for a refusal."""
_Admitted: TypeAlias = Held | InputError | None
"""A request as it is held, or the error that refuses it; None if it may be carried out."""
_NO_TEXT = ("Cc", "Cs", "Zl", "Zp")
"""Unicode's categories of control characters, halves of pairs, and ends of lines and paragraphs."""


class Approvals:
    """Held requests of one run. Replicas that share the ledger share them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._admit = Grouped(self._admit_group)  # requests that come together share a wait for the disk

    def all(self) -> tuple[Held, ...]:
        """Every held request, the newest first; those that were decided included."""
        with self._parts.ledger.reading() as transaction:
            return tuple(transaction.rows.all(Held))

    def waiting(self) -> tuple[Held, ...]:
        """Held requests without a decision, the newest first."""
        with self._parts.ledger.reading() as transaction:
            return tuple(transaction.held.waiting())

    def find(self, id: str) -> Held | None:
        with self._parts.ledger.reading() as transaction:
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

        A request that is repeated, with its key or while it waits, is held and counted once. With `strict`, one with an
        unknown name is not held: `Run.delete` refuses it. `caller` is the name of the caller's token.
        """
        if limits == Limits(records=None, share=None):
            return None
        names = requested_names(records, subjects)
        key = None if key is None else requested("the idempotency key", [key])[0]
        request = Request.of(self._parts.secret, **names, key=key)
        return self._admit(partial(_admitted, request=request, caller=caller, strict=strict, limits=limits))

    def _admit_group(self, group: Sequence[Callable[[Transaction], _Admitted]]) -> list[_Admitted]:
        with after_refusal(NOTHING_CHANGED), self._parts.ledger.writing() as transaction:
            return [admitted(transaction) for admitted in group]

    def impact(self, held: Held) -> Deletion:
        """Forecast a waiting request, as a dry run does.

        It looks at the names alone, not at the key: a request that cannot be approved any more is shown, to be refused.
        """
        outcome = self._parts.deleter.delete(replace(self._request(held.id), key=None), dry_run=True)
        return self._told(outcome, dry_run=True)

    def approve(self, id: str, *, by: str, repair: bool = True, progress: Progress = silent) -> Approved:
        """Approve a held request, and carry it out. What a crash stops here, the next opening goes on with. Then repair
        as `Run.delete` does, which has these arguments, too."""
        with after_refusal(NOTHING_CHANGED):
            self._parts.check_changeable()
            self._parts.check_trainable()
        with after_refusal(NOTHING_CHANGED), self._parts.ledger.writing() as transaction:
            held = _known(transaction, id)
            if held.state == "refused":
                reason = f"{id} was refused by {held.decided_by}; send the request again with another key"
                raise DecidedError("the approval", reason)
            if held.state == "held":
                if by == held.asked_by:
                    raise OwnRequestError("the approval", f"{by} asked for {id}: another token has to approve it")
                earlier = None if held.request is None else transaction.history.request(held.request)
                if earlier is not None and earlier.content != held.content:
                    reason = f"the idempotency key of {id} was used for other names since; refuse the request"
                    raise DecidedError("the approval", reason)
                transaction.held.decide(id, by=by, approved=True)
        outcome = self._carry_out(id, until_erased=True)
        with after_refusal(OUT_OF_USE):
            with self._parts.ledger.reading() as transaction:
                held = _known(transaction, id)
            if not outcome.entries and held.deletion is not None:
                outcome = self._parts.deleter.followed(outcome, held.deletion)
            done = self._told(outcome, dry_run=False)
        return Approved(**dict(held), outcome=repaired(self._parts, done, progress) if repair else done)

    def refuse(self, id: str, *, by: str, reason: str) -> Held:
        """Refuse a held request: nothing is deleted, and its names are forgotten.

        The reason is kept and shown to the caller that asked; it names no person.
        """
        reason = _checked_reason(reason)
        with after_refusal(NOTHING_CHANGED), self._parts.ledger.writing() as transaction:
            held = _known(transaction, id)
            if held.state in ("approved", "done"):
                raise DecidedError("the refusal", f"{id} was approved by {held.decided_by}")
            transaction.held.decide(id, by=by, approved=False, reason=reason)
            return _known(transaction, id)

    def refuse_all(self, asked_by: str, *, by: str, reason: str) -> tuple[Held, ...]:
        """Refuse every request of a caller that waits, as `refuse` does each; those that were refused."""
        reason = _checked_reason(reason)
        with after_refusal(NOTHING_CHANGED), self._parts.ledger.writing() as transaction:
            refused = [held.id for held in transaction.held.waiting() if held.asked_by == asked_by]
            for id in refused:
                transaction.held.decide(id, by=by, approved=False, reason=reason)
            return tuple(_known(transaction, id) for id in refused)

    def carry_out_approved(self) -> dict[str, S3TError]:
        """Carry out every approved request that a crash or an error stopped; returns the errors of those that fail."""
        with self._parts.ledger.reading() as transaction:
            left = sorted(transaction.held.approved())
        errors: dict[str, S3TError] = {}
        for id in left:
            try:
                outcome = self._carry_out(id, until_erased=False)
                for warning in outage_of(self._parts, outcome.after):
                    logging.getLogger("s3t.run").warning("request %s, approved, was carried out: %s", id, warning)
            except FsyncError:
                raise
            except S3TError as error:  # the others, and answers, must not wait for it
                errors[id] = error
        return errors

    def _told(self, outcome: Outcome, *, dry_run: bool) -> Deletion:
        done = deletion_of(self._parts, outcome, dry_run=dry_run)
        return done.model_copy(update={"already": None, "unknown": None})  # of its names only tokens are kept

    def _carry_out(self, id: str, *, until_erased: bool) -> Outcome:
        try:
            return self._parts.deleter.delete(self._request(id), until_erased=until_erased)
        except S3TError as error:
            if error.aftermath in (None, NOTHING_CHANGED):
                error.aftermath = APPROVED
            raise

    def _request(self, id: str) -> Request:
        with self._parts.ledger.reading() as transaction:
            held = _known(transaction, id)  # as it is now: another may have carried it out
            records, subjects = transaction.held.names_of(held)
            earlier = None if held.request is None else transaction.history.request(held.request)
        return Request(
            records=dict.fromkeys(records, ""),
            subjects=dict.fromkeys(subjects, ""),
            key=held.request if earlier is None or earlier.content == held.content else None,  # taken by other names
            content=held.content,
            received=time.monotonic() - max(0.0, time.time() - held.asked_at.timestamp()),
            held=held.id,
        )


def _admitted(transaction: Transaction, *, request: Request, caller: str, strict: bool, limits: Limits) -> _Admitted:
    if request.key is not None and transaction.history.request(request.key) is not None:
        return None
    same = transaction.held.same(caller, request=request.key, content=request.content)
    if same is not None and same.content != request.content:
        reason = "was used for a request with other names; use a new key for a new request"
        return InputError("the idempotency key", reason)
    if same is not None and same.asked_by != caller:  # who joined a request could then approve it
        return InputError("the idempotency key", "is that of another caller's request; use one of your own")
    if same is not None:
        return same
    located = transaction.locate(records=request.records.keys(), subjects=request.subjects.keys())
    found = {token for row in located.rows for token in (row.token, row.subject)} | located.gone.keys()
    if strict and not found >= request.names.keys():
        return None
    losses, present = Counter[int](), Counter[int]()  # records, by shard
    for row in located.rows:
        losses[row.place.shard] += row.copies
    for place, state in transaction.snapshot().slices.items():
        present[place.shard] += state.records
    mark = secrets.token_hex(8)
    if request.key is not None:  # and its names: other names with the same key, sent meanwhile, count beside it
        mark = hashlib.blake2b(request.key + request.content, digest_size=8).hexdigest()
    why = why_held(limits, losses=losses, present=present, before=transaction.held.rates(caller, but=mark))
    if why is None:
        transaction.held.note_admitted(caller, losses, mark=mark)
        return None
    if sum(held.asked_by == caller for held in transaction.held.waiting()) >= MOST_WAITING:
        reason = f"{MOST_WAITING} of this caller wait for approval; let an operator decide on some first"
        return TooManyHeldError("the request", reason)
    held = Held(
        id=secrets.token_hex(8),
        asked_by=caller,
        asked_at=utc(transaction.rows.now()),
        why=why,
        names=len(request.names),
        records=sum(losses.values()),
        request=request.key,
        content=request.content,
    )
    transaction.held.add(held, records=request.records.keys(), subjects=request.subjects.keys())
    return held


def _checked_reason(reason: str) -> str:
    reason = reason.strip()
    if not 0 < len(reason) <= MOST_REASON or any(unicodedata.category(each) in _NO_TEXT for each in reason):
        raise InputError("the refusal", f"reason: give 1 to {MOST_REASON} characters in one line")
    return reason


def _known(transaction: Transaction, id: str) -> Held:
    if (held := transaction.held.find(id)) is None:
        raise InputError("the request", f"none was held under the id {id!r}; s3t deletions held RUN lists them")
    return held
