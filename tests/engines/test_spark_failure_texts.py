"""What a user is told of a query that failed, from texts that Spark wrote."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from elastream.engines.spark.failed_input import MOST_RECORDS, input_text
from elastream.engines.spark.failures import Failure, StepFailure, failure_of

TEXTS = Path(__file__).parent / "spark_error_texts"

TOLD = {
    "pandas_udf": ("ValueError: bidder 666 is poison", "bids.py:13, in check"),
    "udf": ("ValueError: bidder 0 is poison", "job.py:14, in plain"),
    "udf_two_lines": ("ValueError: two lines: second 0", "job.py:16, in multi"),
    "map_in_pandas": ("KeyError: 'nope'", "job.py:23, in mapper"),
    "sink_raises": ("ConnectionError: the warehouse does not answer", "job.py:37, in sink_raises"),
    "sink_udf": ("ValueError: bidder 0 is poison", "job.py:14, in plain"),
    "raise_error": ("SparkRuntimeException: [USER_RAISED_EXCEPTION] a bad record", None),
    "cast": ("NumberFormatException: [CAST_INVALID_INPUT] The value 'a0' of the type \"STRING\"", "job.py:32"),
    "divide": ("ArithmeticException: [DIVIDE_BY_ZERO] Division by zero.", "job.py:33"),
    "no_broker": (
        "no broker of Kafka answers: TimeoutException: Timed out waiting for a node assignment. Call: listNodes",
        None,
    ),
    "no_topic": ("there is no such topic: UnknownTopicOrPartitionException: This server does not host", None),
    "no_servers": (
        "kafka.bootstrap.servers is not HOST:PORT, a host of it is not known, or a security setting",
        None,
    ),
    "worker_crash": ("SparkException: Python worker exited unexpectedly (crashed).", None),
    "source_late": ("a Python worker did not connect in time (busy machine?)", None),
}


def text(name: str) -> str:
    return (TEXTS / f"{name}.txt").read_text(encoding="utf-8")


def test_every_text_is_looked_at() -> None:
    assert {path.stem for path in TEXTS.iterdir()} == set(TOLD)


@pytest.mark.parametrize("name", TOLD)
def test_the_line_that_counts(name: str) -> None:
    reason, place = TOLD[name]
    found = failure_of(text(name))
    assert found.reason.startswith(reason)
    assert found.place == place
    assert "Python Proxy" not in found.text
    assert "SQLSTATE" not in found.text
    assert len(found.text.splitlines()) == 1
    assert len(found.reason) <= 300


def test_only_a_late_worker_is_one() -> None:
    assert [name for name in TOLD if failure_of(text(name)).late_worker] == ["source_late"]


def test_a_sentence_of_ours_stands_alone() -> None:
    said = (
        "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
        '  File "/x/query.py", line 1, in _write\n    raise error\n'
        "elastream.errors.ElastreamError: numbers: batch 3 has 20 records, and 0 are found\n"
        "\n\n=== Streaming Query ===\n"
    )
    assert failure_of(said) == Failure(
        reason="numbers: batch 3 has 20 records, and 0 are found", place="query.py:1, in _write"
    )


@pytest.mark.parametrize("said", ["", "\n", "it ended without an error", "Traceback (most recent call last):\n"])
def test_there_is_always_a_line(said: str) -> None:
    assert failure_of(said).reason


def failed(**changes: object) -> StepFailure:
    values: dict[str, object] = {
        "operator": "scored",
        "failure": Failure(reason="ValueError: bidder 666 is poison", place="bids.py:13, in check"),
        "batch": 7,
        "most": 4,
        "input": "the record that it names, from bids: {bidder=666}",
    }
    return StepFailure(**{**values, **changes})  # type: ignore[arg-type]


def test_the_first_time_all_is_told_and_then_less() -> None:
    assert failed().told == (
        "scored: batch 7 failed: ValueError: bidder 666 is poison (bids.py:13, in check); the record that it "
        "names, from bids: {bidder=666}; it is tried again, at most 4 times"
    )
    assert failed(before=1).told == (
        "scored: batch 7 failed again (2 times now): ValueError: bidder 666 is poison (bids.py:13, in check)"
    )
    assert "tried again" not in failed(before=4).told
    assert failed(before=4).last == (
        "'scored' failed 5 times, the last time with: ValueError: bidder 666 is poison (bids.py:13, in check), "
        "in batch 7; the record that it names, from bids: {bidder=666}"
    )


def test_a_late_worker_is_one_plain_line() -> None:
    late = failed(failure=failure_of(text("source_late")), batch=None, input=None)
    assert late.told == (
        "operator scored: a Python worker did not connect in time (busy machine?); the batch is tried again"
    )


def test_the_record_that_an_error_names() -> None:
    records = [{"bidder": number, "name": f"n{number}"} for number in range(1_000)]
    assert input_text(records, "ValueError: bidder 666 is poison", of="bids") == (
        "the record that it names, from bids: {bidder=666, name='n666'}"
    )
    assert input_text(records, "KeyError: 'n12'", of="bids") == (
        "the record that it names, from bids: {bidder=12, name='n12'}"
    )


def test_else_the_first_ones() -> None:
    records = [{"ok": True, "name": None, "text": "x" * 1_000} for _ in range(10)]
    told = input_text(records, "ValueError: True None", of="bids")
    assert told is not None
    assert told.startswith("its input from bids begins with {ok=True, name=None, text='xxx")
    assert told.count("{") == 2
    assert len(told) < 300


def test_a_moment_is_shown_as_people_write_it() -> None:
    at = datetime(2026, 11, 18, 21, 54, 12, 345_000)
    told = input_text([{"at": at, "bidder": 666}], "ValueError: bidder 666 is poison", of="bids")
    assert told == "the record that it names, from bids: {at=2026-11-18 21:54:12.345000, bidder=666}"


def test_no_records_no_sentence() -> None:
    assert input_text([], "ValueError", of="bids") is None


def test_not_more_is_looked_through_than_the_bound() -> None:
    looked = 0

    def endless() -> object:
        nonlocal looked
        while True:
            looked += 1
            yield {"id": looked}

    input_text(endless(), "nothing is named", of="bids")  # type: ignore[arg-type]
    assert looked <= MOST_RECORDS + 1
