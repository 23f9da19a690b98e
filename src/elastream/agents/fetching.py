"""What stands behind a URL, within a time and up to a size: others' endpoints hang, trickle and grow."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from elastream.errors import ElastreamError, InvalidInput

WITHIN_S = 5.0
MOST_BYTES = 5_000_000
_MOST_REASON_BYTES = 65_536


def fetched(
    asked: str | urllib.request.Request, *, within_s: float = WITHIN_S, most_bytes: int = MOST_BYTES
) -> str:
    """All of it within the time, not only its first byte."""
    url = asked if isinstance(asked, str) else asked.full_url
    ends_s = time.monotonic() + within_s
    content = bytearray()
    try:
        with _opener(ends_s) as opener, opener.open(asked, timeout=within_s) as answer:
            while piece := answer.read1(65_536):
                content += piece
                if len(content) > most_bytes:
                    raise InvalidInput(f"{url}: more than {most_bytes:,} bytes are no metrics")
            if answer.length or time.monotonic() >= ends_s:  # half a number would be another one
                raise http.client.IncompleteRead(b"")
    except urllib.error.HTTPError as error:
        raise ElastreamError(f"{url}: {_reason(error)}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:  # those of urllib are an OSError
        if isinstance(error, ElastreamError):
            raise
        why = f"does not answer within {within_s:g} s" if time.monotonic() >= ends_s else _why(error)
        raise ElastreamError(f"{url}: {why}") from None
    return content.decode("utf-8", errors="replace")


@contextmanager
def _opener(ends_s: float) -> Iterator[urllib.request.OpenerDirector]:
    """Its connections are shut then, as a timeout of a socket begins anew with each byte."""
    timers: list[threading.Timer] = []

    def watch(connection: http.client.HTTPConnection) -> None:
        timers.append(threading.Timer(max(0.0, ends_s - time.monotonic()), _shut, [connection.sock]))
        timers[-1].daemon = True
        timers[-1].start()

    class Watched(http.client.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            watch(self)

    class WatchedTls(http.client.HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            watch(self)

    class Http(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Watched, req)

    class Https(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(WatchedTls, req)

    try:
        yield urllib.request.build_opener(Http, Https)
    finally:
        for timer in timers:
            timer.cancel()


def _shut(connected: socket.socket) -> None:
    with suppress(OSError):  # it is closed by now
        connected.shutdown(socket.SHUT_RDWR)


def _why(error: Exception) -> str:
    if isinstance(error, http.client.HTTPException):
        return f"its answer is cut off, or no HTTP ({type(error).__name__})"
    return f"does not answer: {error}"


def _reason(error: urllib.error.HTTPError) -> str:
    """What an API says of it: Prometheus in `error`, problems of HTTP (RFC 9457) in `detail`."""
    try:
        told = json.loads(error.read1(_MOST_REASON_BYTES))
        return str(told.get("detail") or told["error"])
    except (OSError, ValueError, AttributeError, KeyError):
        return f"does not answer: {error}"
