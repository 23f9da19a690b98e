"""What can be asked of a run: REST that reads, and the stream of updates."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Annotated, TypeVar

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from elastream.policies.rules.metrics import of_operators
from elastream.showing import as_views, views
from elastream.web import problems
from elastream.web.admission import still_may_look
from elastream.web.feed import Feed, TooManyViewersError
from elastream.web.problems import ProblemError

_MOST = 1_000
_NOT_YET = problems.documented(HTTPStatus.NOT_FOUND)
Found = TypeVar("Found")
Limit = Annotated[int, Query(ge=1, le=_MOST, description="at most so many, the newest")]
After = Annotated[int, Query(ge=0, description="only those with a higher id")]


def reading_routes(feed: Feed, configuration: views.ConfigurationView) -> APIRouter:
    router = APIRouter(tags=["run"])

    @router.get("/run", response_model=views.RunView, summary="Everything that a page needs to begin with")
    async def run() -> Response:
        return _json(feed.history.view())

    @router.get("/graph", response_model=views.GraphView, responses=_NOT_YET, summary="Operators and edges")
    async def graph() -> Response:
        return _json(_measured(feed.history.graph()))

    @router.get("/snapshot", response_model=views.WindowView, responses=_NOT_YET, summary="The newest window")
    async def snapshot() -> Response:
        return _json(_measured(feed.history.window))

    @router.get(
        "/operators",
        responses=_NOT_YET,
        summary="What rules look at in the newest window, of an instance on average: for agents to read",
    )
    async def operators() -> Mapping[str, Mapping[str, float]]:
        return of_operators(_measured(feed.latest))

    @router.get("/history", response_model=views.HistoryView, summary="The windows so far, as columns")
    async def history() -> Response:
        return _json(feed.history.columns())

    @router.get("/decisions", summary="What was decided and what became of it, oldest first")
    async def decisions(after: After = 0, limit: Limit = _MOST) -> list[views.DecisionView]:
        return [found for found in feed.history.decisions() if found.id > after][-limit:]

    @router.get("/events", summary="What the manager told, oldest first")
    async def events(
        after: After = 0,
        limit: Limit = _MOST,
        kind: Annotated[str | None, Query(description="only this kind: decided, acted, judged, ...")] = None,
    ) -> list[views.EventView]:
        found = [event for event in feed.history.events() if event.id > after and kind in (None, event.kind)]
        return found[-limit:]

    @router.get("/cost", summary="What the run used, beside a static peak")
    async def cost() -> views.CostView:
        return feed.history.cost

    @router.get("/manager", summary="The manager's phase, and what people set")
    async def manager() -> views.ManagerView:
        return feed.history.manager

    @router.get("/configuration", summary="The policy, its options and the manager's knobs")
    async def configured() -> views.ConfigurationView:
        if configuration.shown != "recording":
            return configuration
        return as_views.recorded_configuration(configuration, feed.history.header)

    return router


def stream_routes(feed: Feed) -> APIRouter:
    router = APIRouter(tags=["run"])

    @router.get(
        "/stream",
        summary="Updates as they come (Server-Sent Events)",
        description="First an event `run` with a RunView, then events `update` with an Update each. A client that "
        "comes back with Last-Event-ID is sent what it missed, or a `run` where that is too long ago.",
        response_class=StreamingResponse,
        responses={
            200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
            **problems.documented(HTTPStatus.SERVICE_UNAVAILABLE),
        },
    )
    async def stream(request: Request, last_event_id: Annotated[str | None, Header()] = None) -> Response:
        abort = getattr(request.state, "abort", lambda: None)
        try:
            viewer = feed.join(last_event_id, abort)
        except TooManyViewersError:
            raise ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages look at this run") from None
        return StreamingResponse(_while_allowed(request, feed.frames(viewer)), media_type="text/event-stream")

    return router


async def _while_allowed(asking: Request, frames: AsyncGenerator[bytes]) -> AsyncIterator[bytes]:
    async with aclosing(frames):
        async for frame in frames:
            if not await still_may_look(asking):
                return
            yield frame


def _measured(found: Found | None) -> Found:
    if found is None:
        raise ProblemError(HTTPStatus.NOT_FOUND, "nothing was measured yet")
    return found


def _json(view: BaseModel) -> Response:
    """Straight to text: going through Python's own values costs many times as much."""
    return Response(view.model_dump_json(), media_type="application/json")
