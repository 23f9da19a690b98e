"""The commands that serve, as processes: what they print, what they answer, and how they end."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from serving import PATIENCE_S, eventually, in_order, word_count, write

from elastream.measurement.recording import RecordingWriter, RunHeader, read_recording

WORD_COUNT = Path(__file__).parents[2] / "examples" / "wordcount.yaml"


_COMMAND = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # as from a terminal, however the tests were started
from elastream.cli import main
main()
"""


@contextmanager
def elastream(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", _COMMAND, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str], pattern: str) -> str:
    """What it says on standard error that fits; it is read until then."""
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(pattern, line):
            return found[1]
    raise AssertionError(f"it ended without saying {pattern!r}")


def test_a_recording_is_served_and_followed_until_ctrl_c(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    path.write_text("")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with elastream("serve", str(path), "--port", port, "--json") as process:
            said(process, "(nothing was recorded yet)")
            assert said(process, r"port (\d+) is in use") == port
            url = said(process, r"page: (http://127\.0\.0\.1:\d+/)")
            write(path, in_order(word_count(1))[:5])
            with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
                eventually("the window is there", lambda: client.get("api/v1/snapshot").status_code == 200)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
            assert process.stdout is not None
            assert json.loads(process.stdout.read()) == {"url": url}


def test_a_recording_that_was_cut_off_is_shown_by_the_name_that_its_run_gave_it(tmp_path: Path) -> None:
    path = tmp_path / "some name.jsonl"
    header = RunHeader(
        pipeline="clicks",
        policy="ds2",
        options={"tolerance": 0.2},
        knobs={"interval_s": 7.0, "dry_run": True, "forgotten": 1},
    )
    with RecordingWriter(path) as recording:
        recording.begin(header)
    write(path, in_order(word_count(1)))
    with path.open("a") as file:
        file.write('{"event": "snapshot", "oper')
    with elastream("serve", str(path), "--port", "0") as process:
        said(process, "(the last line is cut off)")
        url = said(process, r"page: (http://127\.0\.0\.1:\d+/)")
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
            about = client.get("api/v1/run").json()["about"]
            assert about == {"pipeline": "clicks", "policy": "ds2", "engine": None}
            found = client.get("api/v1/configuration").json()
            assert (found["pipeline"], found["policy"], found["acts"]) == ("clicks", "ds2", False)
            options = {option["name"]: (option["value"], option["unit"]) for option in found["knobs"]}
            assert options == {"interval_s": (7.0, "s"), "dry_run": (True, ""), "forgotten": (1, "")}
            assert [option["name"] for option in found["options"]] == ["tolerance"]
            assert client.get("api/v1/manager").json()["dry_run"]
            metrics = client.get("metrics").text
            assert 'elastream_windows_total{pipeline="clicks"}' in metrics
            assert 'elastream_manager_dry_run{pipeline="clicks"} 1.0' in metrics


def test_a_recording_of_version_2_is_served(tmp_path: Path) -> None:
    old = Path(__file__).parents[1] / "measurement" / "recordings" / "version-2.jsonl"
    with elastream("serve", str(old), "--port", "0") as process:
        url = said(process, r"page: (http://127\.0\.0\.1:\d+/)")
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
            newest = client.get("api/v1/snapshot").json()
            (decision,) = client.get("api/v1/decisions").json()
    assert newest["at_s"] == 183.0
    assert _plan(newest["operators"]).endswith("words 7, counts 7")
    assert decision["after"] == {"words": 7, "counts": 7}


def test_the_folder_of_a_run_is_served_by_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "clicks"
    folder.mkdir()
    write(folder / "recording.jsonl", in_order(word_count(1))[:5])
    with elastream("serve", str(folder), "--port", "0") as process:
        url = said(process, r"page: (http://127\.0\.0\.1:\d+/)")
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
            assert client.get("api/v1/configuration").json()["pipeline"] == "clicks"
            assert client.get("api/v1/snapshot").status_code == 200


def test_a_recording_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with elastream("serve", str(tmp_path / "none.jsonl")) as process:
        said(process, "error: .*(there is no such file)")
        assert process.wait(PATIENCE_S) == 2


def test_a_simulation_can_be_watched_and_does_what_it_is_told(tmp_path: Path) -> None:
    arguments = ["simulate", str(WORD_COUNT), "--serve", "--port", "0", "--speed", "30", "--out", str(tmp_path)]
    recording = tmp_path / "run.jsonl"
    with elastream(*arguments, "--record", str(recording)) as process:
        url, token = said(process, r"page: (http://127\.0\.0\.1:\d+/#token=\S+)").split("#token=")
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
            eventually("windows come", lambda: client.get("api/v1/snapshot").status_code == 200)
            asked = client.post("api/v1/actions/pause", headers={"Authorization": f"Bearer {token}"})
            about = client.get("api/v1/run").json()["about"]
            assert about == {"pipeline": "word count", "policy": "ds2", "engine": "simulated"}
            assert (asked.status_code, asked.json()["manager"]["paused"]) == (200, True)
            body = {"parallelism": {"words": 7}}
            client.post("api/v1/actions/scale", json=body, headers={"Authorization": f"Bearer {token}"})
            eventually(
                "it is scaled", lambda: "words 7" in _plan(client.get("api/v1/snapshot").json()["operators"])
            )
            assert client.post("api/v1/actions/resume").status_code == 401
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    recorded = read_recording(recording)
    assert recorded.headers[0].pipeline == "word count"
    assert any(snapshot.plan["words"] == 7 for snapshot in recorded.snapshots)
    assert "steered" in {event["event"] for event in recorded.events}


def _plan(operators: list[dict[str, object]]) -> str:
    return ", ".join(f"{operator['name']} {operator['parallelism']}" for operator in operators)
