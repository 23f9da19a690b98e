"""What a request must bring: nothing, a token to look, or one to act. Before any of its body is read."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from elastream.web.problems import ProblemError
from elastream.web.tokens import Role, Tokens

BEARER = HTTPBearer(auto_error=False, description="The token that `elastream run` prints, or one of its file.")


class TokenFirst(APIRoute):
    """Looks at the token before any of the body is read, which FastAPI does before it calls a dependency."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def answer_if_allowed(asking: Request) -> Response:
            if asking.app.state.acting is None:
                raise ProblemError(HTTPStatus.CONFLICT, "this is a recording: there is nobody to ask for anything")
            await _check(asking, Role.ACT)
            return await answer(asking)

        return answer_if_allowed


async def check_may_look(asking: Request) -> None:
    """As a dependency of routes without a body."""
    tokens: Tokens = asking.app.state.tokens
    if not tokens.everyone_looks:
        await _check(asking, Role.LOOK)


async def still_may_look(asking: Request) -> bool:
    """A token may end, or be taken back, while something is still being sent."""
    try:
        await check_may_look(asking)
    except ProblemError:
        return False
    return True


async def _check(asking: Request, wanted: Role) -> None:
    tokens: Tokens = asking.app.state.tokens
    given = await BEARER(asking)
    role = None if given is None else tokens.role_of(given.credentials)
    if role is None:
        who = "actions need" if wanted is Role.ACT else "looking needs"
        what = "the token that the run printed" if tokens.everyone_looks else f"a token that may {wanted}"
        raise ProblemError(
            HTTPStatus.UNAUTHORIZED,
            f"{who} {what}, as `Authorization: Bearer TOKEN`",
            headers={"WWW-Authenticate": "Bearer"},
        )
    if wanted is Role.ACT and role is not Role.ACT:
        raise ProblemError(HTTPStatus.FORBIDDEN, "this token may look, and not act")
