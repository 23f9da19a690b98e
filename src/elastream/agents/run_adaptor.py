"""A run elsewhere as what is scaled: `elastream run` offers a REST API, and these are the four calls over it.

The run lives in a process of its own, so masters may die without it. It should decide nothing itself (paused, or
with rules that say nothing); what a master asks for is done as if it had been asked for by hand.
"""

from __future__ import annotations

import json
import logging
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elastream.agents.fetching import fetched
from elastream.errors import ElastreamError
from elastream.formats import read_json

_log = logging.getLogger(__name__)

_WITHIN_S = 30.0  # a run may answer an action only after 20 s
_DONE_WITHIN_S = 120.0  # executors have to come first, and state to be moved
_LOOK_EVERY_S = 0.2

Fetch = Callable[[urllib.request.Request], str]


def _fetched(request: urllib.request.Request) -> str:
    return fetched(request, within_s=_WITHIN_S)


class RunAdaptor:
    def __init__(self, url: str, token: str, fetch: Fetch = _fetched) -> None:
        """`url` is that of its page, and the token that for actions."""
        self._url = url.partition("#")[0].rstrip("/") + "/api/v1"
        self._token, self._fetch = token, fetch
        self._sizes: Mapping[str, int] = {}
        self._original: Mapping[str, int] = {}
        self._known: int | None = None
        """The newest decision of the run that was seen here."""

    def operators(self) -> Sequence[str]:
        """Asks the run, as once in each round; the sizes are then known as well."""
        scalable = [one["name"] for one in self._ask("/graph")["operators"] if not one["fixed"]]
        sizes = self._in_force()
        self._sizes = {name: sizes[name] for name in scalable if name in sizes}
        return tuple(self._sizes)

    def current_size(self, operator: str) -> int:
        return self._sizes[operator]

    def original_size(self, operator: str) -> int:
        """Before the first decision that the run knows of."""
        if operator not in self._original:
            first = self._ask("/decisions")[:1]
            self._original = {**self._sizes, **(first[0]["before"] if first else {})}
        return self._original[operator]

    def set_size(self, operator: str, size: int) -> None:
        """Returns when it is in force."""
        if self._in_force().get(operator) == size:
            return
        before = self._newest_decision()
        self._ask("/actions/scale", {"parallelism": {operator: size}})
        found = self._ended(after=-1 if before is None else before["id"])
        self._known = found["id"]
        if found["outcome"] != "done":
            raise ElastreamError(found["detail"] or f"{operator} could not be given {size} instances")

    def _ended(self, after: int) -> Mapping[str, Any]:
        """The decision that came after that one, when it has been carried out."""
        ends_s = time.monotonic() + _DONE_WITHIN_S
        while time.monotonic() < ends_s:
            found = self._newest_decision()
            if found is not None and found["id"] > after and found["outcome"] != "under way":
                return found
            time.sleep(_LOOK_EVERY_S)
        raise ElastreamError(f"{self._url}: what was asked for is not done within {_DONE_WITHIN_S:g} s")

    def _in_force(self) -> Mapping[str, int]:
        """As the newest window has them, or as an action left them after it."""
        window, last = self._ask("/snapshot"), self._newest_decision()
        self._notice(last)
        sizes = {one["name"]: one["parallelism"] for one in window["operators"] if one["parallelism"] is not None}
        if last is not None and last["at_s"] >= window["at_s"]:
            sizes.update(last["in_force"] or {})
        return sizes

    def _notice(self, last: Mapping[str, Any] | None) -> None:
        """Masters in different folders know nothing of each other, but each sees what becomes of the run."""
        number = -1 if last is None else last["id"]
        if last is not None and self._known is not None and number > self._known:
            changes = ", ".join(
                f"{name} {size} → {last['after'][name]}"
                for name, size in last["before"].items()
                if last["after"][name] != size
            )
            who = "another master, the run itself, or a person"
            _log.warning("%s: someone else scales it, too: %s (%s)", self._url, changes, who)
        self._known = number

    def _newest_decision(self) -> Mapping[str, Any] | None:
        found = self._ask("/decisions?limit=1")
        return found[0] if found else None

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data, headers={} if body is None else headers)
        return read_json(self._fetch(request), self._url + path)
