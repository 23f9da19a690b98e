"""What OpenTelemetry pushes as a source of metrics: gauges, counters and deltas, and what is no metric."""

from __future__ import annotations

import gzip
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from elastream.agents.otlp_metrics import MOST_BYTES, OtlpMetrics
from elastream.agents.prometheus_metrics import series_of
from elastream.errors import InvalidInput

OPERATORS = ("map", "sink")
CUMULATIVE, DELTA = 2, 1


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> Iterator[OtlpMetrics]:
    written = (
        'map.queue_length=queue_depth{host_name="a"}',
        "map.input_rate=rate(records)",
        "sink.input_rate=rate(batches)",
    )
    with closing(OtlpMetrics(0, tuple(series_of(one, OPERATORS) for one in written), clock)) as found:
        yield found


def push(metrics: OtlpMetrics, content: bytes, path: str = "/v1/metrics", **headers: str) -> tuple[int, str]:
    headers = {
        "Content-Type": "application/json",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    request = urllib.request.Request(f"http://127.0.0.1:{metrics.port}{path}", data=content, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def pushed(*found: dict[str, Any], host: str = "a") -> bytes:
    resource = {"attributes": [{"key": "host.name", "value": {"stringValue": host}}]}
    return json.dumps({"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": found}]}]}).encode()


def gauge(name: str, *values: float) -> dict[str, Any]:
    points = [
        {"attributes": [{"key": "part", "value": {"intValue": str(part)}}], "timeUnixNano": "1", "asDouble": value}
        for part, value in enumerate(values)
    ]
    return {"name": name, "gauge": {"dataPoints": points}}


def counter(name: str, value: int, *, at_s: int, since_s: int = 0, sums: int = CUMULATIVE) -> dict[str, Any]:
    times = {"startTimeUnixNano": f"{since_s}000000000", "timeUnixNano": f"{at_s}000000000"}
    points = [{**times, "asInt": str(value)}]
    return {"name": name, "sum": {"isMonotonic": True, "aggregationTemporality": sums, "dataPoints": points}}


def test_what_is_pushed_becomes_metrics_of_operators(metrics: OtlpMetrics, clock: Clock) -> None:
    assert push(metrics, pushed(gauge("queue.depth", 3, 4), counter("records", 100, at_s=10))) == (200, "{}")
    assert push(metrics, pushed(gauge("queue.depth", 50), host="b"))[0] == 200
    assert metrics() == {"map": {"queue_length": 7.0}}, "of one point of a counter there is no rate yet"
    clock.now_s = 10.0
    body = gzip.compress(pushed(counter("records", 300, at_s=20)))
    assert push(metrics, body, Content_Encoding="gzip")[0] == 200
    assert metrics()["map"] == {"queue_length": 7.0, "input_rate": 20.0}
    push(metrics, pushed(counter("records", 300, at_s=20)))
    assert metrics()["map"]["input_rate"] == 20.0, "sent again"
    push(metrics, pushed(counter("records", 5, at_s=30)))
    assert "input_rate" not in metrics()["map"], "it began anew"


def test_deltas_are_rates_of_their_own(metrics: OtlpMetrics) -> None:
    for at_s in (10, 20):
        push(metrics, pushed(counter("batches", 40, at_s=at_s, since_s=at_s - 10, sums=DELTA)))
        assert metrics()["sink"] == {"input_rate": 4.0}


def test_what_is_pushed_no_more_is_no_reading_and_told_once(
    metrics: OtlpMetrics, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for at_s in (0.0, 60.0):  # every minute
        clock.now_s = at_s
        metrics.take([])
        push(metrics, pushed(counter("records", 60 + int(at_s), at_s=1 + int(at_s))))
    clock.now_s = 60.0 + 90.0
    assert metrics() == {"map": {"input_rate": 1.0}}, "one push may be late by half of the time between them"
    clock.now_s += 1
    assert [metrics(), metrics()] == [{}, {}]
    assert [message for message in caplog.messages if "records" in message] == [
        "OTLP: rate(records) is no input_rate of map: nothing was pushed lately"
    ]


def test_a_clock_that_is_set_back_stops_no_series(metrics: OtlpMetrics, clock: Clock) -> None:
    """Its points were taken for some that are sent again, for as long as the clock was set back."""
    rates = []
    for clock.now_s in (0.0, 10.0, 20.0, 30.0, 40.0):
        at_s = 7_200 + int(clock.now_s) - (3_600 if clock.now_s > 10 else 0)
        push(metrics, pushed(counter("records", 100 + 5 * int(clock.now_s), at_s=at_s)))
        rates.append(metrics().get("map", {}).get("input_rate"))
    assert rates == [None, 5.0, 5.0, None, 5.0]


def test_a_series_that_ended_silences_no_other(metrics: OtlpMetrics) -> None:
    ended = {"name": "records", "gauge": {"dataPoints": [{"timeUnixNano": "1", "flags": 1}]}}
    assert push(metrics, pushed(ended, gauge("queue.depth", 3))) == (200, "{}")
    assert metrics() == {"map": {"queue_length": 3.0}}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "Expecting property name"),
        (b"[]", "no metrics of OTLP"),
        (b'{"resourceMetrics": [1]}', "no metrics of OTLP"),
        (pushed({"name": "a", "gauge": {"dataPoints": [{}]}}), "no metrics of OTLP: KeyError"),
        (
            pushed({"name": 7, "gauge": {"dataPoints": [{"asInt": "1", "timeUnixNano": "1"}]}}),
            "no metrics of OTLP",
        ),
        (b"[" * 100_000, "recursion"),
    ],
)
def test_what_is_no_metric_is_refused_and_the_others_are_kept(
    metrics: OtlpMetrics, content: bytes, why: str
) -> None:
    push(metrics, pushed(gauge("queue.depth", 3)))
    status, said = push(metrics, content)
    assert status == 400
    assert why in said
    assert metrics() == {"map": {"queue_length": 3.0}}


@pytest.mark.parametrize(
    ("content", "encoding", "why"),
    [
        (gzip.compress(b" " * (MOST_BYTES + 1)), "gzip", "more than 5,000,000 bytes"),
        (gzip.compress(b"{}")[:-9], "gzip", "cut off"),
        (b"{}", "gzip", "no gzip"),
        (b"{}", "zstd", "not in zstd"),
    ],
    ids=["too long", "cut off", "not packed", "unknown"],  # as gzip writes the time into what it packs
)
def test_so_is_what_cannot_be_unpacked(metrics: OtlpMetrics, content: bytes, encoding: str, why: str) -> None:
    status, said = push(metrics, content, Content_Encoding=encoding)
    assert (status, why in said) == (400, True), said


def test_what_is_too_long_is_not_read(metrics: OtlpMetrics) -> None:
    status, said = push(metrics, b"{}", Content_Length=str(MOST_BYTES + 1))
    assert (status, "a Content-Length of at most 5,000,000 bytes is needed" in said) == (400, True)


def test_other_paths_and_protobuf_are_told_what_to_do(metrics: OtlpMetrics) -> None:
    assert push(metrics, b"{}", path="/v1/traces")[0] == 404
    status, said = push(metrics, b"", Content_Type="application/x-protobuf")
    assert (status, "set `encoding: json`" in said) == (415, True)


def test_more_series_than_are_kept_are_refused_as_a_whole(metrics: OtlpMetrics) -> None:
    push(metrics, pushed(gauge("queue.depth", 3)))
    status, said = push(metrics, pushed(gauge("other", *[1.0] * 10_000)))
    assert (status, "more than 10,000 series" in said) == (400, True)
    assert metrics() == {"map": {"queue_length": 3.0}}


def test_a_port_that_is_taken_is_said(metrics: OtlpMetrics) -> None:
    with pytest.raises(InvalidInput, match=f"--otlp-port {metrics.port}: cannot be listened on"):
        OtlpMetrics(metrics.port, ())
