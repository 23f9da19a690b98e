"""The application: every route, and the check before them."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles

from elastream._version import __version__
from elastream.showing import views
from elastream.web import problems
from elastream.web.actions import Acting, action_routes
from elastream.web.admission import check_may_look
from elastream.web.api import reading_routes, stream_routes
from elastream.web.feed import Feed
from elastream.web.guard import Guard
from elastream.web.metrics import add_metrics
from elastream.web.problems import Problem, ProblemError
from elastream.web.tokens import Tokens

API = "/api/v1"
_LATE_INTERVALS = 5  # without a window for so long, the manager is stuck
_LATE_LEAST_S = 60.0
_PAGE = StaticFiles(directory=Path(__file__).parent / "page", html=True)


def build_app(
    feed: Feed,
    configuration: views.ConfigurationView,
    *,
    hosts: frozenset[str],
    acting: Acting | None = None,
    tokens: Tokens | None = None,
) -> FastAPI:
    app = FastAPI(
        title="elastream",
        version=__version__,
        summary="A pipeline under an autoscaler: what was measured and decided, and what people may ask for.",
        openapi_url=f"{API}/openapi.json",
        docs_url=None,  # its scripts come from elsewhere, and the page allows none but its own
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.acting, app.state.tokens = acting, tokens or Tokens()
    problems.install(app)
    looking: dict[str, Any] = {
        "dependencies": [Depends(check_may_look)],
        "responses": problems.documented(HTTPStatus.UNAUTHORIZED),
    }
    app.include_router(reading_routes(feed, configuration), prefix=API, **looking)
    app.include_router(stream_routes(feed), prefix=API, **looking)
    app.include_router(action_routes(feed), prefix=API)
    _add_probes(app, feed, configuration)
    add_metrics(app, feed)
    _add_page(app)
    app.add_middleware(GZipMiddleware, minimum_size=1_000)
    app.add_middleware(Guard, hosts=hosts)
    app.openapi = lambda: openapi(app)  # type: ignore[method-assign]
    return app


def openapi(app: FastAPI) -> dict[str, Any]:
    """The description of the API, with problems in the place of the errors that FastAPI would describe."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        schemas = schema["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        found = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(found.pop("$defs"))
        schemas["Problem"] = found
        for path in schema["paths"].values():
            for operation in path.values():
                if "422" in operation["responses"]:
                    operation["responses"] |= _as_text_keys(problems.documented(HTTPStatus.UNPROCESSABLE_ENTITY))
        app.openapi_schema = schema
    return app.openapi_schema


def openapi_document() -> dict[str, Any]:
    """Without a run: it is the same for all of them."""
    shown = views.ConfigurationView(pipeline="", shown="recording", policy=None, options=(), knobs=(), acts=False)
    return build_app(Feed(""), shown, hosts=frozenset()).openapi()


def _as_text_keys(responses: dict[int | str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {str(status): described for status, described in responses.items()}


def _add_probes(app: FastAPI, feed: Feed, configuration: views.ConfigurationView) -> None:
    interval_s = next((knob.value for knob in configuration.knobs if knob.name == "interval_s"), 0.0)
    late_s = max(_LATE_LEAST_S, _LATE_INTERVALS * interval_s)

    @app.get("/healthz", tags=["probes"], summary="Whether the server answers")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get(
        "/readyz",
        tags=["probes"],
        summary="Whether windows come",
        responses=problems.documented(HTTPStatus.SERVICE_UNAVAILABLE),
    )
    async def readyz() -> dict[str, str]:
        age_s = feed.latest_age_s
        if age_s is None:
            raise ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, "nothing was measured yet")
        if feed.history.live and configuration.shown != "recording" and age_s > late_s:
            raise ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, f"the newest window is {age_s:.0f} s old")
        return {"status": "ok"}


def _add_page(app: FastAPI) -> None:
    async def page(request: Request, name: str = "") -> Response:
        response = await _PAGE.get_response(name or "index.html", request.scope)
        response.headers["Cache-Control"] = "no-cache"  # kept, but asked for again: the answer is 304
        return response

    for path in ("/", "/{name}"):
        app.add_api_route(path, page, methods=["GET", "HEAD"], include_in_schema=False, response_model=None)
