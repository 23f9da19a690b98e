"""Metrics of operators that OpenTelemetry pushes: OTLP over HTTP, in JSON, as its collector sends them.

exporters: {otlphttp: {endpoint: "http://127.0.0.1:4318", encoding: json}}

Series are named as those of Prometheus (`prometheus_metrics.py`), with underscores in the place of dots;
attributes of a resource are labels like those of a point. Only this machine is listened to, so the collector
stands beside the agent.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from elastream.agents.prometheus_metrics import Scraped, Series, is_of
from elastream.errors import InvalidInput
from elastream.measurement.amounts import MOST_AMOUNT

_log = logging.getLogger(__name__)

MOST_BYTES = 5_000_000
MOST_SERIES = 10_000
_WITHIN_S = 5.0
_LOOK_EVERY_S = 0.1  # whether it is to end
_FRESH = 1.5  # of the time between the last two points of a series
_LEAST_FRESH_S = 15.0
_KEPT_S = 600.0  # of a series, to compare its next point with
_NOT_OF_A_NAME = re.compile(r"[^a-zA-Z0-9_:]")
_DELTA = (1, "AGGREGATION_TEMPORALITY_DELTA")
_NO_VALUE = 1  # a flag of a point: its series has ended, as for the Prometheus receiver of a collector


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricPoint:
    sample: Scraped
    at_s: float
    """By the clock of whoever measured it."""
    counts: bool = False
    """It only grows."""
    since_s: float | None = None
    """Where it is what came since then, and not all so far."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pushed:
    point: MetricPoint
    per_s: float | None
    came_s: float
    fresh_until_s: float


class OtlpMetrics:
    """An `EngineMetrics`: what was pushed last of each series, until it is too old to be true."""

    def __init__(
        self, port: int, series: tuple[Series, ...], steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._series, self._steady = series, steady
        self._pushed: dict[tuple[str, frozenset[tuple[str, str]]], _Pushed] = {}
        self._told: set[Series] = set()
        self._lock = threading.Lock()
        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        except (OSError, OverflowError) as error:
            raise InvalidInput(f"--otlp-port {port}: cannot be listened on: {error}") from None
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=[_LOOK_EVERY_S], name="otlp", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __call__(self) -> Mapping[str, Mapping[str, float]]:
        found: dict[str, dict[str, float]] = {}
        with self._lock:
            fresh = [one for one in self._pushed.values() if one.fresh_until_s >= self._steady()]
        for series in self._series:
            its = [one for one in fresh if is_of(one.point.sample, series)]
            values = [one.per_s if series.per_second else one.point.sample.value for one in its]
            known = [value for value in values if value is not None]
            total = sum(known)
            if known and 0 <= total <= MOST_AMOUNT:
                found.setdefault(series.operator, {})[series.metric] = total
                self._told.discard(series)
            elif series not in self._told:
                self._told.add(series)
                why = f"its sum is {total:g}" if known else "nothing was pushed lately"
                _log.warning("OTLP: %s is no %s of %s: %s", series, series.metric, series.operator, why)
        return found

    def take(self, points: Iterable[MetricPoint]) -> None:
        """All of them or none."""
        now_s = self._steady()
        with self._lock:
            pushed = {key: one for key, one in self._pushed.items() if one.came_s >= now_s - _KEPT_S}
            for point in points:
                key = (point.sample.name, frozenset(point.sample.labels.items()))
                pushed[key] = _after(pushed.get(key), point, now_s)
            if len(pushed) > MOST_SERIES:
                raise InvalidInput(f"more than {MOST_SERIES:,} series: let the collector filter them")
            self._pushed = pushed

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        take = self.take

        class Handler(BaseHTTPRequestHandler):
            timeout = _WITHIN_S

            def do_POST(self) -> None:
                status, why = HTTPStatus.OK, ""
                if self.path != "/v1/metrics":
                    status, why = HTTPStatus.NOT_FOUND, "metrics are taken at /v1/metrics"
                elif self.headers.get_content_type() != "application/json":
                    status, why = HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "JSON is taken: set `encoding: json`"
                else:
                    try:
                        take(points_of(json.loads(self._body())))
                    except (InvalidInput, ValueError, RecursionError) as error:
                        status, why = HTTPStatus.BAD_REQUEST, str(error)
                answer = json.dumps({"message": why} if why else {}).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def _body(self) -> bytes:
                length = int(self.headers.get("Content-Length") or -1)
                if not 0 <= length <= MOST_BYTES:
                    raise InvalidInput(f"a Content-Length of at most {MOST_BYTES:,} bytes is needed")
                return unpacked(self.rfile.read(length), self.headers.get("Content-Encoding") or "identity")

            def log_message(self, *args: object) -> None:
                """Each push would be a line."""

        return Handler


def unpacked(content: bytes, encoding: str) -> bytes:
    if encoding == "identity":
        return content
    if encoding != "gzip":
        raise InvalidInput(f"content is taken as it is or in gzip, not in {encoding}")
    unpacking = zlib.decompressobj(wbits=31)
    try:
        found = unpacking.decompress(content, MOST_BYTES)
    except zlib.error as error:
        raise InvalidInput(f"no gzip: {error}") from None
    if not unpacking.eof:
        raise InvalidInput(f"cut off, or more than {MOST_BYTES:,} bytes")
    return found


def points_of(data: Any) -> list[MetricPoint]:
    """Of gauges and sums; of other kinds (histograms, summaries) there is no one number."""
    try:
        return list(_points(data))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"no metrics of OTLP: {type(error).__name__}: {error}") from None


def _points(data: Any) -> Iterator[MetricPoint]:
    for resource in data["resourceMetrics"]:
        of_resource = _labels(resource.get("resource", {}))
        for scope in resource.get("scopeMetrics", []):
            for metric in scope.get("metrics", []):
                for kind in ("gauge", "sum"):
                    for point in metric.get(kind, {}).get("dataPoints", []):
                        if int(point.get("flags", 0)) & _NO_VALUE:
                            continue
                        labels = of_resource | _labels(point)
                        yield _point(_NOT_OF_A_NAME.sub("_", metric["name"]), labels, metric[kind], point)


def _point(
    name: str, labels: Mapping[str, str], metric: Mapping[str, Any], point: Mapping[str, Any]
) -> MetricPoint:
    is_delta = metric.get("aggregationTemporality") in _DELTA
    value = float(point["asDouble"] if "asDouble" in point else point["asInt"])
    return MetricPoint(
        sample=Scraped(name, labels, value),
        at_s=int(point["timeUnixNano"]) / 1e9,
        counts=bool(metric.get("isMonotonic")),
        since_s=int(point["startTimeUnixNano"]) / 1e9 if is_delta else None,
    )


def _labels(found: Mapping[str, Any]) -> dict[str, str]:
    """Lists and maps are no labels."""
    attributes = {one["key"]: one["value"] for one in found.get("attributes", [])}
    return {
        _NOT_OF_A_NAME.sub("_", key): str(value[kind])
        for key, value in attributes.items()
        for kind in ("stringValue", "intValue", "doubleValue", "boolValue")
        if kind in value
    }


def _after(before: _Pushed | None, point: MetricPoint, now_s: float) -> _Pushed:
    """With the rate since the point before, and what came in deltas added up.

    Earlier ones are sent again, unless the last one is not true any more: then the sender's clock was set back.
    """
    earlier = before is not None and 0 < point.at_s <= before.point.at_s
    if before is not None and earlier and (point.at_s == before.point.at_s or now_s <= before.fresh_until_s):
        return before
    total, per_s = point.sample.value, None
    if point.since_s is not None:
        per_s = _rate(total, point.at_s - point.since_s)
        total += 0.0 if before is None else before.point.sample.value
    elif before is not None:
        per_s = _rate(total - before.point.sample.value, point.at_s - before.point.at_s)
    apart_s = 0.0 if before is None else now_s - before.came_s
    return _Pushed(
        point=replace(point, sample=Scraped(point.sample.name, point.sample.labels, total)),
        per_s=per_s if point.counts else None,
        came_s=now_s,
        fresh_until_s=now_s + max(_LEAST_FRESH_S, _FRESH * apart_s),
    )


def _rate(grown: float, took_s: float) -> float | None:
    """None where the counter began anew."""
    return grown / took_s if grown >= 0 and took_s > 0 else None
