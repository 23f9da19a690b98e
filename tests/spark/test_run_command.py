"""`elastream run` as a process: it is served, and Ctrl-C ends it after the batches under way, with its summary."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
from running import PATIENCE_S, kept, records, wait_until

from elastream.engines.spark.channels.files import FileChannel
from elastream.monitor.recording import read_recording

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
    assert read_recording(folder / "run" / "recording.jsonl").snapshots
    found = sorted(number for (number,) in records(sink))
    assert found == list(range(len(found))), "every record once, none left out"
