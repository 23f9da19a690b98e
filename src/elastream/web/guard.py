"""Who may ask at all: the check of every request before anything else looks at it.

The server listens on loopback, where every page that the user's browser shows can reach it. So a request is
refused whose Host is not the server's own (a name of another site that was made to point here), and one that
another site's page makes (its Origin, or Sec-Fetch-Site where the browser sends no Origin). There are no cookies
to steal, and actions need a token besides (`actions.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elastream.web import problems

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_USUAL_PORTS = {"http": 80, "https": 443}
MOST_BODY = 1_000_000
_HEADERS = {
    # no script, style or address but the server's own, and nobody may put the page in a frame
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def own_hosts(host: str, port: int, names: Iterable[str] = (), scheme: str = "http") -> frozenset[str]:
    """The values of Host that mean this server, which listens there and goes by these names, too."""
    given = [name.lower() for name in names]
    named = f"[{host}]" if ":" in host else host
    known = [*_LOOPBACK, named.lower(), *given]
    # browsers leave out the usual port, and a name that stands for the server behind a proxy comes without any
    bare = known if port == _USUAL_PORTS[scheme] else given
    return frozenset([*(f"{name}:{port}" for name in known), *bare])


def refusal(headers: Mapping[str, str], hosts: Iterable[str]) -> str | None:
    """Why a request with these headers is refused, or None."""
    host = headers.get("host", "").lower()
    if host not in hosts:
        return f"this server does not go by the name {host!r}"
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
        return f"pages of {origin} may not ask this server"
    elsewhere = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    if elsewhere and headers.get("sec-fetch-mode") != "navigate":  # a link on another site may be followed
        return "pages of other sites may not ask this server"
    return None


def is_too_long(headers: Mapping[str, str]) -> bool:
    """Whether what is sent is more than any request needs, or of a length that nobody knows before."""
    length = headers.get("content-length", "0")
    return "transfer-encoding" in headers or not length.isdecimal() or int(length) > MOST_BODY


class Guard:
    """ASGI middleware: the check, and the headers that keep a browser from doing what the page never asks for."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        headers = Headers(scope=scope)
        if (why := refusal(headers, self._hosts)) is not None:
            await problems.response(HTTPStatus.FORBIDDEN, why)(scope, receive, send_with_headers)
        elif is_too_long(headers):
            why = f"a request has at most {MOST_BODY:,} bytes, and says how many"
            await problems.response(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)(scope, receive, send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)
