"""Endpoints and servers of Prometheus as sources of metrics: read well, and borne when they misbehave."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlparse

import pytest

from elastream.agents.fetching import fetched
from elastream.agents.prometheus_metrics import PrometheusMetrics, Series, scraped, series_of
from elastream.agents.prometheus_queries import PrometheusQueries
from elastream.agents.rounds import InstanceReading, Round
from elastream.errors import ElastreamError, InvalidInput
from tests.patience import PATIENCE_S, wait_until

TEXT = """\
# HELP lag Records that wait.
# TYPE lag gauge
lag{topic="in",partition="0"} 120
lag{topic="in",partition="1"} 30 1700000000000
lag{topic="out"} 7
# TYPE records_total counter
records_total{job="a\\"b"} 1e3
# TYPE size_bytes gauge
size_bytes NaN
# EOF
"""


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("queue_length=lag", Series(operator="map", metric="queue_length", name="lag")),
        (
            'queue-length = lag{topic="in"}',
            Series(operator="map", metric="queue_length", name="lag", labels=(("topic", "in"),)),
        ),
        (
            "map.input_rate=rate(n_total)",
            Series(operator="map", metric="input_rate", name="n_total", per_second=True),
        ),
    ],
)
def test_series_are_named_as_in_prometheus(written: str, expected: Series) -> None:
    assert series_of(written, ("map",)) == expected


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("lag", "--series takes"),
        ("queue_length=", "--series takes"),
        ("queue_lenght=lag", "did you mean 'queue_length'"),
        ("sink.latency=x", "does not read for 'sink'"),
    ],
)
def test_what_is_no_series_is_refused(written: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        series_of(written, ("map",))


def a_reader(*written: str, texts: Iterator[str], times_s: Iterator[float]) -> PrometheusMetrics:
    series = tuple(series_of(one, ("map",)) for one in written)
    return PrometheusMetrics("http://it", series, fetch=lambda _: next(texts), steady=lambda: next(times_s))


def test_an_exposition_becomes_metrics_of_operators(caplog: pytest.LogCaptureFixture) -> None:
    written = (
        'queue_length=lag{topic="in"}',
        'input_rate=rate(records_total{job="a\\"b"})',
        "state_size=size_bytes",
    )
    later = TEXT.replace("1e3", "1500").replace("120", "20")
    read = a_reader(*written, texts=iter([TEXT, later, TEXT]), times_s=iter([0.0, 5.0, 10.0]))
    assert read() == {"map": {"queue_length": 150.0}}
    assert read() == {"map": {"queue_length": 50.0, "input_rate": 100.0}}
    assert read() == {"map": {"queue_length": 150.0}}, "a counter that began anew has no rate yet"
    assert caplog.messages == ["http://it: size_bytes must be a number from 0 to 1e+18, found nan"], "once"


def test_what_is_no_label_takes_no_longer_the_longer_it_is() -> None:
    """A search that begins anew at every character would take minutes for these."""
    for labels in ("a" * 200_000, 'a="\\"' * 50_000, "a" + " " * 200_000 + "b"):
        samples, _ = scraped(f'up{{of="b",{labels}}} 1')
        assert [sample.labels["of"] for sample in samples] == ["b"]
    assert scraped("up" + " " * 200_000 + "1 2 3") == ([], {})


def test_a_type_that_changes_and_a_series_that_goes_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    changed = TEXT.replace("records_total counter", "records_total gauge")
    texts = iter([TEXT, changed, changed, "nothing here", TEXT, TEXT.replace("1e3", "2000")])
    read = a_reader("input_rate=rate(records_total)", texts=texts, times_s=iter([0.0, 1.0, 2.0]))
    assert [read() for _ in range(5)] == [{}] * 5
    assert read() == {"map": {"input_rate": 1_000.0}}, "and read again once it is there"
    assert caplog.messages == [
        "http://it: rate(records_total) takes a counter, found a gauge",
        "http://it: there is no rate(records_total), which is to be input_rate of map",
    ]


def test_what_is_no_amount_is_told_once_however_it_varies(caplog: pytest.LogCaptureFixture) -> None:
    texts = iter([f'lag{{a="1"}} +Inf\nlag{{a="2"}} -Inf\ndepth -{number}\nheight 7' for number in (1, 2)])
    read = a_reader("queue_length=lag", "latency=depth", "state_size=height", texts=texts, times_s=iter([]))
    assert [read(), read()] == [{"map": {"state_size": 7.0}}] * 2
    assert caplog.messages == [
        "http://it: lag must be a number from 0 to 1e+18, found nan",
        "http://it: depth must be a number from 0 to 1e+18, found -1",
    ]


# Endpoints that misbehave


@contextmanager
def answering(*pieces: bytes, pause_s: float = 0.0, closes: bool = False) -> Iterator[str]:
    """A server that says these one after the other, and is then silent, or closes the connection."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                for piece in pieces:
                    if over.wait(pause_s):
                        return
                    try:
                        connection.sendall(piece)
                    except OSError:
                        return
                if not closes:
                    over.wait(60)

        threading.Thread(target=answer, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/metrics"
        over.set()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n"


def test_an_endpoint_that_hangs_is_given_up() -> None:
    began_s = time.monotonic()
    with answering() as url, pytest.raises(ElastreamError, match=r"does not answer within 0\.3 s"):
        fetched(url, within_s=0.3)
    with answering(HEAD) as url, pytest.raises(ElastreamError, match=r"does not answer within 0\.3 s"):
        fetched(url, within_s=0.3)
    assert time.monotonic() - began_s < 30


def test_so_is_one_that_trickles() -> None:
    """Each byte comes in time, but not all of them."""
    with (
        answering(HEAD, *[b"x"] * 600, pause_s=0.1) as url,
        pytest.raises(ElastreamError, match=r"does not answer within 0\.5 s"),
    ):
        fetched(url, within_s=0.5)


def test_so_is_one_whose_headers_trickle() -> None:
    with (
        answering(b"HTTP/1.1 200 OK\r\nX-Slow: ", *[b"x"] * 600, pause_s=0.1) as url,
        pytest.raises(ElastreamError, match=r"does not answer within 0\.5 s"),
    ):
        fetched(url, within_s=0.5)


@pytest.mark.parametrize(
    "said", [b"+OK ready\r\n\r\n", b"\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nlag 12"]
)
def test_what_is_no_answer_of_http_or_is_cut_off_is_said(said: bytes) -> None:
    """The thread that asks Prometheus ended with what was no HTTP; of 12,345 a cut left 12."""
    with (
        answering(said, closes=True) as url,
        pytest.raises(ElastreamError, match="its answer is cut off, or no HTTP"),
    ):
        fetched(url, within_s=60.0)


def test_ten_megabytes_are_no_metrics() -> None:
    with answering(HEAD, b"x" * 10_000_000) as url, pytest.raises(InvalidInput, match="more than 5,000,000 bytes"):
        fetched(url, within_s=60.0)


# Queries


class Prometheus:
    """Answers by query, and notes what it was asked."""

    def __init__(self, **results: object) -> None:
        self.results = results
        self.asked: list[str] = []
        self.now_s = 0.0

    def __call__(self, url: str) -> str:
        (query,) = parse_qs(urlparse(url).query)["query"]
        self.asked.append(query)
        found = self.results[query]
        if isinstance(found, Exception):
            raise found
        return json.dumps(found)

    def queries(self, *metrics: str) -> PrometheusQueries:
        found = PrometheusQueries("http://p:9090/", 5.0, fetch=self, steady=lambda: self.now_s)
        found.ask_for(metrics)
        return found


def vector(*samples: tuple[dict[str, str], object]) -> dict[str, object]:
    result = [{"metric": labels, "value": [1.7e9, value]} for labels, value in samples]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def test_a_query_gives_a_number_for_all_operators_or_one_for_each() -> None:
    scalar = {"status": "success", "data": {"resultType": "scalar", "result": [1.7e9, "4"]}}
    server = Prometheus(a=vector(({}, "12.5")), b=vector(({"operator": "map"}, "3")), c=scalar)
    queries = server.queries("promql:a", "promql: b", "promql:c", "queue_length")
    queries.look()
    assert queries.values("map") == {"promql:a": 12.5, "promql: b": 3.0, "promql:c": 4.0}
    assert queries.values("sink") == {"promql:a": 12.5, "promql:c": 4.0}
    assert sorted(server.asked) == ["a", "b", "c"]


def test_a_query_that_takes_long_holds_up_no_other() -> None:
    over, times = threading.Event(), Counter[str]()

    def fetch(url: str) -> str:
        (asked,) = parse_qs(urlparse(url).query)["query"]
        times[asked] += 1
        if asked == "slow":
            over.wait(PATIENCE_S)
        return json.dumps(vector(({}, times[asked])))

    queries = PrometheusQueries("http://p:9090", 0.01, fetch=fetch, steady=lambda: 0.0)
    queries.ask_for(["promql:slow", "promql:quick"])
    queries.start()
    wait_until(lambda: queries.values("map").get("promql:quick", 0.0) >= 3)
    queries.stop()
    assert times["slow"] == 1, "and is not asked again while it is under way"
    over.set()


def test_an_answer_is_no_answer_for_ever() -> None:
    server = Prometheus(a=vector(({}, "1")))
    queries = server.queries("promql:a")
    queries.look()
    server.now_s = 7.0
    assert queries.values("map") == {"promql:a": 1.0}
    server.now_s = 8.0
    assert queries.values("map") == {}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ElastreamError("p: does not answer"), "does not answer"),
        ({"status": "error", "error": "parse error"}, "the query 'a': parse error"),
        (vector(({"x": "1"}, "1"), ({"x": "2"}, "2")), "gives 2 series; aggregate them"),
        (vector(({}, "NaN")), "a number from 0 to 1e"),
        (vector(({}, "-1")), "a number from 0 to 1e"),
        (vector(({}, None)), "a number from 0 to 1e"),
        ([], "a number, or one for each operator, was expected"),
        ({"status": "success", "data": {"resultType": "matrix", "result": []}}, "was expected"),
    ],
)
def test_what_is_no_answer_is_told_once_and_the_others_go_on(
    answer: object, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    queries = Prometheus(a=answer, b=vector(({}, "1"))).queries("promql:a", "promql:b")
    queries.look()
    queries.look()
    assert queries.values("map") == {"promql:b": 1.0}
    assert [why in message for message in caplog.messages] == [True]


def test_what_is_no_number_for_one_operator_is_no_blind_spot_for_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """0/0 where nothing arrives, say."""
    server = Prometheus(a=vector(({"operator": "map"}, "3"), ({"operator": "sink"}, "NaN")))
    queries = server.queries("promql:a")
    for value in ("NaN", "+Inf", "7"):
        server.results["a"] = vector(({"operator": "map"}, "3"), ({"operator": "sink"}, value))
        queries.look()
        assert queries.values("map") == {"promql:a": 3.0}
    assert queries.values("sink") == {"promql:a": 7.0}
    (told,) = caplog.messages
    assert told.startswith("the query 'a', sink: a number from 0 to 1e")


def test_what_is_brought_for_an_operator_is_read_by_all_of_its_instances() -> None:
    own = InstanceReading(operator="map", instance=3, agent="a", taken_at_s=0.0, values={"latency": 1.0})
    found = Round(number=1, at_s=9.0, window_s=1.0, readings=(own,), received={})
    told = found.with_values({"map": {"promql:a": 2.0}, "sink": {"promql:a": 3.0}, "other": {}})
    assert [(one.operator, one.instance, one.values) for one in told.readings] == [
        ("map", 3, {"latency": 1.0, "promql:a": 2.0}),
        ("sink", 0, {"promql:a": 3.0}),
    ]
