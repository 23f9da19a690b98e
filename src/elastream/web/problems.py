"""Errors over HTTP: problem details (RFC 9457), the same shape whatever went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from elastream.errors import shown

MEDIA_TYPE = "application/problem+json"
_MOST_PART = 60


class FieldProblem(BaseModel):
    field: str = Field(description="where it stands: body.parallelism.words")
    message: str
    line: int | None = Field(default=None, description="in a text that was sent, where it has lines")


class Problem(BaseModel):
    """What went wrong, for people and for programs (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = []


class ProblemError(Exception):
    """Raised by whoever answers a request; becomes the answer."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        errors: list[FieldProblem] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.errors, self.headers = status, detail, errors or [], headers


def response(
    status: int, detail: str, *, errors: list[FieldProblem] | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    problem = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, errors=errors or [])
    return Response(
        problem.model_dump_json(), status_code=status, media_type=MEDIA_TYPE, headers=dict(headers or {})
    )


def documented(*statuses: HTTPStatus) -> dict[int | str, dict[str, Any]]:
    """For a route's `responses`: the problems that it may answer with."""
    return {
        int(status): {
            "description": status.phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in statuses
    }


def install(app: FastAPI) -> None:
    @app.exception_handler(ProblemError)
    async def _problem(_: Request, error: ProblemError) -> Response:
        return response(error.status, error.detail, errors=error.errors, headers=error.headers)

    @app.exception_handler(HTTPException)
    async def _http(_: Request, error: HTTPException) -> Response:
        return response(error.status_code, str(error.detail), headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> Response:
        found = [_field(entry) for entry in error.errors()]
        detail = "; ".join(f"{problem.field}: {problem.message}" for problem in found[:3])
        return response(HTTPStatus.UNPROCESSABLE_ENTITY, detail, errors=found)

    @app.exception_handler(Exception)
    async def _failed(_: Request, error: Exception) -> Response:
        return response(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}; the log has more")


def _field(entry: Mapping[str, Any]) -> FieldProblem:
    message = f"{entry['msg']}, found {shown(entry['input'])}" if "input" in entry else str(entry["msg"])
    return FieldProblem(field=".".join(_part(part) for part in entry["loc"]), message=message)


def _part(part: object) -> str:
    """A key that was sent is part of the place: it may be of any length, and have half of a character in it."""
    text = str(part)[:_MOST_PART].encode("utf-8", "backslashreplace").decode()
    return text if len(str(part)) <= _MOST_PART else f"{text}..."
