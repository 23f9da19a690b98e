"""`elastream run` as a process: it is served, and Ctrl-C ends it after the batches under way, with its summary."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
from driver_process import kill_session
from running import PATIENCE_S, kept, records, wait_until

from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.workspace import Workspace
from elastream.manager.events import Accounted, event_of_line
from elastream.measurement.recording import read_recording

_PIPELINE = """
from pathlib import Path
from elastream.engines.spark.pipeline import Pipeline
from elastream.workloads.generator import SCHEMA

pipeline = Pipeline("counted")
load = {{"constant": 100}}
pipeline.feed("sentences", schema=SCHEMA)

@pipeline.operator(reads="sentences")
def ids(sentences):
    return sentences.select("id")

pipeline.keep("all", reads="ids", folder=Path({folder!r}))
"""
_COMMAND = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # as from a terminal, however the tests were started
from elastream.cli import main
main()
"""


def scaled_by_hand(said: str) -> None:
    """As a page does it: with the address and the token that were printed."""
    url, token = re.findall(r"page: (http://\S+/)#token=(\S+)", said)[0]
    with httpx.Client(base_url=url, timeout=PATIENCE_S, headers={"Authorization": f"Bearer {token}"}) as client:
        assert client.post("api/v1/actions/pause").status_code == 200
        asked = client.post("api/v1/actions/scale", json={"parallelism": {"ids": 3}})
        assert (asked.status_code, asked.json()["what"]) == (200, "asked for by hand: ids 1 → 3")
        wait_until(lambda: "3" in _instances(client), lambda: str(_instances(client)))
        assert [one["kind"] for one in client.get("api/v1/decisions").json()] == ["by hand"]


def _instances(client: httpx.Client) -> list[str]:
    found = client.get("api/v1/snapshot").json()
    return [str(operator["parallelism"]) for operator in found.get("operators", []) if operator["name"] == "ids"]


def test_it_is_served_and_ctrl_c_ends_it_after_the_batches_under_way(tmp_path: Path) -> None:
    folder = tmp_path / "with a space"
    folder.mkdir()
    file = folder / "counted.py"
    file.write_text(_PIPELINE.format(folder=str(kept(folder, "all"))))
    said = tmp_path / "said.txt"
    command = ["run", str(file), "--folder", str(folder / "run"), "--interval", "2 s", "--master", "local[4]"]
    command += ["--port", "0", "--set", "activation_intervals=1000"]  # the policy leaves it to the test to scale
    with said.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *command],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "COLUMNS": "200"},
        )
    sink = FileChannel(kept(folder, "all"))
    try:
        wait_until(lambda: process.poll() is not None or sink.log.head().records > 200, said.read_text)
        scaled_by_hand(said.read_text())
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the driver and all that it has started
        assert process.wait(PATIENCE_S) == 0, said.read_text()
    finally:
        process.kill()
    assert "stopping after the batches under way" in said.read_text()
    assert "ended with" in said.read_text(), "the summary"
    assert "Traceback" not in said.read_text()
    assert "adds up" in said.read_text()
    assert "it does not add up" not in said.read_text()
    assert read_recording(folder / "run" / "recording.jsonl").snapshots
    found = sorted(number for (number,) in records(sink))
    assert found == list(range(len(found))), "every record once, none left out"


_COUNTED_BY_TIME = """
from pathlib import Path
from pyspark.sql import functions as F
from elastream.engines.spark.pipeline import Pipeline

pipeline = Pipeline("by_time")

@pipeline.source
def bids(spark):
    return spark.readStream.schema("id bigint, at timestamp").option("maxFilesPerTrigger", 1).json({bids!r})

@pipeline.operator(reads="bids")
def even(bids):
    return bids.where("id % 2 = 0")

@pipeline.operator(reads="even", state_partitions=2)
def windows(even):
    by = F.window("at", "10 seconds"), (F.col("id") % 10).alias("key")
    return even.withWatermark("at", "5 seconds").groupBy(*by).count()

pipeline.keep("all", reads="even", folder=Path({folder!r}) / "all")
pipeline.keep("counted", reads="windows", folder=Path({folder!r}) / "counted")
"""
BIDS = 400


def put_bids(folder: Path, name: str, numbers: range) -> None:
    """A file of bids, a tenth of a second apart; a source sees it whole or not at all."""
    at = {number: datetime(2026, 11, 16, tzinfo=UTC) + timedelta(seconds=number / 10) for number in numbers}
    lines = (json.dumps({"id": number, "at": when.isoformat()}) + "\n" for number, when in at.items())
    (folder / f".{name}").write_text("".join(lines))
    (folder / f".{name}").rename(folder / name)


def started(file: Path, folder: Path, said: Path, *options: str) -> subprocess.Popen[bytes]:
    command = ["run", str(file), "--folder", str(folder), "--no-serve", "--interval", "1 s", *options]
    with said.open("w") as output, said.with_suffix(".err").open("w") as errors:
        return subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *command, "--master", "local[4]"],
            stdout=output,
            stderr=errors,
            start_new_session=True,
            env={**os.environ, "COLUMNS": "200"},
        )


def test_totals_are_exact_after_a_kill_and_late_records_are_the_last_that_is_said(tmp_path: Path) -> None:
    folder, bids, file = tmp_path / "run", tmp_path / "bids", tmp_path / "by_time.py"
    bids.mkdir()
    file.write_text(_COUNTED_BY_TIME.format(bids=str(bids), folder=str(tmp_path)))
    for number in range(0, BIDS, 50):
        put_bids(bids, f"{number}.json", range(number, number + 50))
    everything, counted = FileChannel(tmp_path / "all"), FileChannel(tmp_path / "counted")
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    process = started(file, folder, first)
    try:
        wait_until(lambda: process.poll() is not None or counted.log.head().records > 0, first.read_text)
    finally:
        kill_session(process.pid)
        process.wait()
    assert "dropped at least" not in first.read_text(), "it had no time to say anything"
    put_bids(bids, "late.json", range(20))
    process = started(file, folder, second, "--json")
    try:
        wanted = (BIDS + 20) // 2
        even = Workspace(folder, "by_time").channel("even").log

        def is_done() -> bool:
            return everything.log.head().records == wanted and even.pending("windows") + even.pending("all") == 0

        wait_until(lambda: process.poll() is not None or is_done(), second.read_text)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0, second.with_suffix(".err").read_text()
    finally:
        kill_session(process.pid)
        process.wait()
    told = json.loads(second.read_text())
    assert told["differences"] == []
    found = {name: (step["out"], step["in"], step["waiting"]) for name, step in told["records"].items()}
    assert found["bids"][0] == BIDS + 20
    assert found["even"] == (wanted, BIDS + 20, 0)
    assert found["all"] == (wanted, wanted, 0)
    assert found["windows"][1:] == (wanted, 0)
    assert found["counted"][0] == found["counted"][1] == found["windows"][0] - found["counted"][2]
    late = told["records"]["windows"]["late"]
    assert 5 <= late <= 10, "ten even bids with five keys, of a window that is long over"
    last = second.with_suffix(".err").read_text().splitlines()[-1]
    assert last.startswith("windows")
    assert any(f"windows dropped at least {late} records as late" in text for text in told["warnings"])
    newest = (folder / "recording.jsonl").read_text().splitlines()[-1]
    assert isinstance(event_of_line(json.loads(newest)), Accounted)
