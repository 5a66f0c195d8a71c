"""Routes of requests for deletion that are held until an operator decides. See `routes` on annotations."""

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends

from s3t.results.changes import Deletion
from s3t_server import deleting
from s3t_server.answering import ServedRun
from s3t_server.callers import Caller
from s3t_server.deleting import held_request
from s3t_server.documents import RefusalRequest
from s3t_server.problems import StrictRoute
from s3t_server.routes import OF_A_BODY, problem_responses, requires

if TYPE_CHECKING:
    pass


def held_of(served: ServedRun) -> APIRouter:
    """Routes of a run's held requests, below its prefix."""
    router = APIRouter(route_class=StrictRoute, tags=["held deletions"])
    approvals = served.run.approvals
    operator = Annotated[Caller, Depends(requires(served, "operate"))]
    reader = Annotated[Caller, Depends(requires(served, "delete", "operate", "audit"))]

    @router.get("/held", summary="List held deletions", responses=problem_responses())
    def all_held(_caller: reader) -> dict[str, Any]:
        """Requests that waited for an operator, or still do, the newest first; without names."""
        return {"held": [held.to_json() for held in approvals.all()]}

    @router.get(
        "/held/{id}",
        summary="Follow a held deletion",
        responses=problem_responses(HTTPStatus.NOT_FOUND),
    )
    def one(id: str, caller: reader) -> dict[str, Any]:
        """Its state, and the deletion that it became. For operators, while it waits, what it would do."""
        held = held_request(served, id)
        plan = None
        if held.state == "held" and caller.may("operate"):
            plan = approvals.impact(held).model_dump(mode="json", include={"deleted", *Deletion.PLACES})
        return {**held.to_json(), "plan": plan}

    @router.post(
        "/held/{id}/approve",
        summary="Approve a held deletion",
        responses=problem_responses(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )
    async def approve(id: str, caller: operator) -> dict[str, Any]:
        """Carry it out. Not with the token that asked for it."""
        return (await deleting.approve(served, id, caller)).to_json()

    @router.post(
        "/held/{id}/refuse",
        summary="Refuse a held deletion",
        responses=problem_responses(*OF_A_BODY, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )
    def refuse(id: str, asked: RefusalRequest, caller: operator) -> dict[str, Any]:
        """Delete nothing, and forget its names. The reason is kept, and shown to the caller that asked."""
        return deleting.refuse(served, id, caller, reason=asked.reason).to_json()

    return router
