"""What may be asked for over HTTP, by those who have the token: it goes to the manager, which decides.

Nothing is done here. A request becomes one of `manager/requests.py` and goes into the manager's inbox; the answer
is what the manager tells of it. Rules are a file, which the manager reads again when it has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from fastapi import Request as HttpRequest
from pydantic import AfterValidator, ConfigDict, Field

from elastream.errors import ElastreamError, InvalidInput
from elastream.manager.inbox import Inbox, InboxFull
from elastream.manager.requests import MOST_BY_HAND, Pause, Request, Resume, RollBack, Scale, SetBounds, SetDryRun
from elastream.showing.views import ManagerView, View
from elastream.texts import MOST_NAME, check_name
from elastream.web import problems
from elastream.web.admission import BEARER, TokenFirst
from elastream.web.feed import Feed
from elastream.web.problems import FieldProblem, ProblemError
from elastream.web.rules_file import RulesCheck, RulesFile, RulesVersionView, RulesView

_ANSWER_WITHIN_S = 20.0  # the manager may be in the middle of an action, which takes as long as it takes
_MOST_TEXT = 100_000
_MOST_NAME = 100

Instances = Annotated[int, Field(ge=1, le=MOST_BY_HAND)]


def _shown_name(name: str) -> str:
    try:
        check_name(name, "name")
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    return name


Name = Annotated[str, Field(max_length=MOST_NAME), AfterValidator(_shown_name)]
"""Of an operator; what is refused is told to all that look, so that no text is let in that could not be shown."""


@dataclass(frozen=True, kw_only=True)
class Acting:
    """What actions need; there is none where nobody would carry them out."""

    inbox: Inbox
    rules: RulesFile | None = None


class Body(View):
    """What is sent: a text is no number, and no word but true and false is one of them."""

    model_config = ConfigDict(strict=True)


class DryRunBody(Body):
    on: bool


class BoundsBody(Body):
    operator: Name
    least: Instances | None = Field(default=None, description="null leaves it to the operator's own")
    most: Instances | None = Field(default=None, description="null leaves it to the operator's own")


class ScaleBody(Body):
    parallelism: Mapping[Name, Instances] = Field(min_length=1, description="operators, with their instances")


class RulesBody(Body):
    text: str = Field(max_length=_MOST_TEXT, description="the rules, in YAML")
    version: str | None = Field(default=None, description="of the rules that were edited; another is refused")
    who: str = Field(default="the page", max_length=_MOST_NAME, description="noted with this version")


class TakeBackBody(Body):
    version: str | None = Field(default=None, description="to go back to; the one before the present where null")
    instead_of: str | None = Field(default=None, description="that the caller saw in force; another is refused")
    who: str = Field(default="the page", max_length=_MOST_NAME, description="noted with this version")


class CheckBody(Body):
    text: str = Field(max_length=_MOST_TEXT, description="the rules, in YAML")


class ActionView(View):
    done: bool = Field(description="false where the manager has not come to it yet; the stream will tell")
    what: str
    manager: ManagerView


_PROBLEMS = problems.documented(
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.CONFLICT,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_LATER: dict[int | str, dict[str, Any]] = {
    202: {"model": ActionView, "description": "The manager is busy, and will do it when it is not"}
}


def _allowed(asking: HttpRequest, _: Annotated[object, Depends(BEARER)]) -> Acting:
    """The token was checked; that it is needed stands in the OpenAPI document by this."""
    acting: Acting = asking.app.state.acting
    return acting


Allowed = Annotated[Acting, Depends(_allowed)]


def action_routes(feed: Feed) -> APIRouter:
    router = APIRouter(tags=["actions"], responses=_PROBLEMS, route_class=TokenFirst)

    async def ask(who: Acting, request: Request, response: Response) -> ActionView:
        return await _ask(feed, who, request, response)

    @router.post("/actions/pause", responses=_LATER, summary="Decide nothing until resumed")
    async def pause(who: Allowed, response: Response) -> ActionView:
        return await ask(who, Pause(), response)

    @router.post("/actions/resume", responses=_LATER, summary="Go on deciding")
    async def resume(who: Allowed, response: Response) -> ActionView:
        return await ask(who, Resume(), response)

    @router.post("/actions/dry-run", responses=_LATER, summary="Decide, but carry out nothing; or end that")
    async def dry_run(who: Allowed, body: DryRunBody, response: Response) -> ActionView:
        return await ask(who, SetDryRun(on=body.on), response)

    @router.post("/actions/bounds", responses=_LATER, summary="The least and the most instances of an operator")
    async def bounds(who: Allowed, body: BoundsBody, response: Response) -> ActionView:
        request = SetBounds(operator=body.operator, least=body.least, most=body.most)
        return await ask(who, request, response)

    @router.post("/actions/scale", responses=_LATER, summary="Scale by hand, operators together in one action")
    async def scale(who: Allowed, body: ScaleBody, response: Response) -> ActionView:
        return await ask(who, Scale(parallelism=dict(body.parallelism)), response)

    @router.post("/actions/roll-back", responses=_LATER, summary="Take back the last action")
    async def roll_back(who: Allowed, response: Response) -> ActionView:
        return await ask(who, RollBack(), response)

    # not async: reading rules may take a while, and runs beside the loop, which answers others meanwhile

    @router.get("/rules", responses=problems.documented(HTTPStatus.NOT_FOUND), summary="The rules as they stand")
    def rules(who: Allowed) -> RulesView:
        return _rules(who).read()

    @router.post(
        "/rules/check", responses=problems.documented(HTTPStatus.NOT_FOUND), summary="What these rules would do"
    )
    def check(who: Allowed, body: CheckBody) -> RulesCheck:
        return _rules(who).check(body.text)

    @router.put("/rules", responses=problems.documented(HTTPStatus.NOT_FOUND), summary="Put rules in their place")
    def edit(who: Allowed, body: RulesBody) -> RulesView:
        return _edited(who, body.text, body.version, body.who)

    @router.get(
        "/rules/versions",
        responses=problems.documented(HTTPStatus.NOT_FOUND),
        summary="The versions that were put in place here, with who and when, oldest first",
    )
    def versions(who: Allowed) -> tuple[RulesVersionView, ...]:
        return _rules(who).versions()

    @router.post(
        "/rules/take-back",
        responses=problems.documented(HTTPStatus.NOT_FOUND),
        summary="Put an earlier version in place again, which is a version of its own",
    )
    def take_back(who: Allowed, body: TakeBackBody) -> RulesView:
        in_force = body.instead_of or _rules(who).read().version
        return _edited(who, _rules(who).text_of(body.version), in_force, body.who)

    return router


def _edited(who: Acting, text: str, version: str | None, by: str) -> RulesView:
    file = _rules(who)
    verdict = file.check(text)
    if verdict.errors:
        found = [FieldProblem(field="body.text", message=e.text, line=e.line) for e in verdict.errors]
        detail = f"the rules stay as they were: {verdict.errors[0].text}"
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail, errors=found)
    written = file.write(text, version, by)
    who.inbox.wake()
    return written


async def _ask(feed: Feed, who: Acting, request: Request, response: Response) -> ActionView:
    try:
        answer = asyncio.wrap_future(who.inbox.ask(request))
        told = await asyncio.wait_for(asyncio.shield(answer), _ANSWER_WITHIN_S)
    except InboxFull:
        raise ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, "too much was asked for already") from None
    except TimeoutError:
        response.status_code = HTTPStatus.ACCEPTED
        return ActionView(done=False, what="the manager has not come to it yet", manager=feed.history.manager)
    except ElastreamError as error:
        raise ProblemError(HTTPStatus.CONFLICT, str(error)) from None
    if told.refusal is None:
        return ActionView(done=True, what=told.what, manager=feed.history.manager)
    if told.refusal.field is None:
        raise ProblemError(HTTPStatus.CONFLICT, told.refusal.why)
    found = FieldProblem(field=f"body.{told.refusal.field}", message=told.refusal.why)
    raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, f"{found.field}: {found.message}", errors=[found])


def _rules(who: Acting) -> RulesFile:
    if who.rules is None:
        raise ProblemError(HTTPStatus.NOT_FOUND, "this run does not scale by rules")
    return who.rules
