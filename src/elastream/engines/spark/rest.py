"""JSON that Spark's processes offer over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from elastream.errors import ElastreamError

_TIMEOUT_S = 60.0  # the first answer loads the API, which takes seconds on a busy machine


class RestApi:
    """What the driver of one application tells of it."""

    def __init__(self, url: str, application: str) -> None:
        self._base = f"{url}/api/v1/applications/{application}"

    def get(self, path: str) -> Any:
        return get_json(self._base + path)


def get_json(url: str) -> Any:
    try:
        return json.loads(_answer(urllib.request.Request(url)))
    except ValueError as error:
        raise ElastreamError(f"Spark's REST API does not answer: {url}: {error}") from None


def post(url: str) -> None:
    _answer(urllib.request.Request(url, method="POST"))


def _answer(request: urllib.request.Request) -> bytes:
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            found: bytes = answer.read()
            return found
    except OSError as error:  # those of urllib and of sockets are all an OSError
        raise ElastreamError(f"Spark's REST API does not answer: {request.full_url}: {error}") from None
