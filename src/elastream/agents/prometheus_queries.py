"""What a Prometheus server answers to the queries that rules name (`metric: "promql:sum(kafka_lag)"`).

Threads ask, so that a server which hangs holds up no round, and a query that takes long no other; what is older
than one and a half intervals is no answer. A query gives one number for all operators that its rule is for, or one
for each by the label `operator`.
"""

from __future__ import annotations

import logging
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from elastream.agents.fetching import fetched
from elastream.errors import ElastreamError, shown
from elastream.formats import read_json
from elastream.measurement.amounts import MOST_AMOUNT
from elastream.policies.rules.metrics import query_in

_log = logging.getLogger(__name__)

_FRESH = 1.5  # intervals
ALL = ""
"""In the place of an operator's name, where an answer is for all."""


class PrometheusQueries:
    def __init__(
        self,
        url: str,
        interval_s: float,
        fetch: Callable[[str], str] = fetched,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url, self._interval_s = url.rstrip("/"), interval_s
        self._fetch, self._steady = fetch, steady
        self._asked: frozenset[str] = frozenset()
        self._answers: dict[str, tuple[float, Mapping[str, float]]] = {}
        self._told: dict[str, str] = {}
        self._under_way: set[str] = set()
        self._over = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._keep_asking, name="prometheus", daemon=True).start()

    def stop(self) -> None:
        """It may be waiting for an answer, which is not waited for."""
        self._over.set()

    def ask_for(self, metrics: Iterable[str]) -> None:
        """The queries among these metrics are asked from now on."""
        self._asked = frozenset(metric for metric in metrics if query_in(metric) is not None)

    def values(self, operator: str) -> Mapping[str, float]:
        """By metric, what is known now."""
        since_s = self._steady() - _FRESH * self._interval_s
        return {
            metric: found.get(operator, found.get(ALL, 0.0))
            for metric, (at_s, found) in list(self._answers.items())
            if at_s >= since_s and (operator in found or ALL in found)
        }

    def look(self) -> None:
        """Ask each once, and wait for the answers."""
        for thread in self._ask_all():
            thread.join()

    def _ask_all(self) -> list[threading.Thread]:
        """Each that is not under way, in a thread of its own."""
        asked = self._asked - self._under_way
        self._under_way |= asked
        threads = [threading.Thread(target=self._ask, args=[metric], daemon=True) for metric in sorted(asked)]
        for thread in threads:
            thread.start()
        return threads

    def _keep_asking(self) -> None:
        while not self._over.is_set():
            self._ask_all()
            self._over.wait(self._interval_s)

    def _ask(self, metric: str) -> None:
        """Of an answer what is a number counts; what is none for one operator is no blind spot for the others."""
        query = query_in(metric)
        assert query is not None, "others are not asked for"
        try:
            found, wrong = self._answer(query)
            self._answers[metric] = self._steady(), found
        except ElastreamError as error:
            wrong = str(error)
        finally:
            self._under_way.discard(metric)
        self._tell(metric, wrong)

    def _tell(self, metric: str, wrong: str) -> None:
        """Once, and again after all was right; what was found instead may vary."""
        why = wrong.partition(", found ")[0]
        if wrong and self._told.get(metric) != why:
            _log.warning("%s", wrong)
        self._told[metric] = why

    def _answer(self, query: str) -> tuple[Mapping[str, float], str]:
        """By operator, and what is wrong with the rest."""
        url = f"{self._url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        place = f"the query {query!r}"
        match read_json(self._fetch(url), place):
            case {"status": "success", "data": {"resultType": "scalar", "result": [_, value]}}:
                return {ALL: _number(value, place)}, ""
            case {"status": "success", "data": {"resultType": "vector", "result": list(found)}}:
                return _by_operator(found, place)
            case {"status": "error", "error": why}:
                raise ElastreamError(f"{place}: {why}")
            case other:
                raise ElastreamError(f"{place}: a number, or one for each operator, was expected: {shown(other)}")


def _by_operator(found: list[Any], place: str) -> tuple[Mapping[str, float], str]:
    named: dict[str, float] = {}
    wrong = {}
    for one in found:
        match one:
            case {"metric": dict(labels), "value": [_, value]}:
                name = str(labels.get("operator", ALL))
                try:
                    named[name] = _number(value, f"{place}, {name}" if name else place)
                except ElastreamError as error:
                    wrong[name] = str(error)
            case _:
                raise ElastreamError(f"{place}: a series with its value was expected, found {shown(one)}")
    if len(named.keys() | wrong.keys()) < len(found):
        how = "aggregate them, as by sum(...) or sum by (operator) (...)"
        raise ElastreamError(f"{place}: gives {len(found)} series; {how}")
    return named, next(iter(wrong.values()), "")


def _number(value: Any, place: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number <= MOST_AMOUNT:
        raise ElastreamError(f"{place}: a number from 0 to {MOST_AMOUNT:g} was expected, found {shown(value)}")
    return number
