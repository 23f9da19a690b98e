"""What `elastream new` writes, run on Spark as a user would: it is sized, and its results are there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from driver_process import kill_session
from running import PATIENCE_S, wait_until

from elastream.errors import InvalidInput
from elastream.measurement.recording import read_recording

_COMMAND = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # as from a terminal, however the tests were started
from elastream.cli import main
main()
"""


def test_it_runs_at_once_and_is_sized(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _COMMAND]
    subprocess.run([*command, "new", "visits"], cwd=tmp_path, check=True, timeout=PATIENCE_S)
    options = ["--interval", "5 s", "--master", "local[4]", "--no-serve"]
    said, recording = tmp_path / "said.txt", tmp_path / "out" / "visits" / "recording.jsonl"

    def checked() -> int:
        """Instances of it in the newest window."""
        with suppress(InvalidInput):  # nothing is recorded yet
            return read_recording(recording, ignore_cut_off=True).snapshots[-1].plan["checked"]
        return 0

    with said.open("w") as output:
        process = subprocess.Popen(
            [*command, "run", "visits/pipeline.py", *options],
            cwd=tmp_path,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "COLUMNS": "200"},
        )
    try:
        wait_until(lambda: process.poll() is not None or checked() >= 2, said.read_text)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0, said.read_text()
    finally:
        kill_session(process.pid)
    assert "rescale: checked 1 → " in said.read_text()
    assert "it does not add up" not in said.read_text()
    assert "Traceback" not in said.read_text()
    run = (tmp_path / "out" / "visits" / "identity").read_text()[:12]
    results = list((tmp_path / "out" / "visits_results").glob(f"batch={run}-*/*.json"))
    rows = [json.loads(line) for path in results for line in path.read_text().splitlines()]
    assert {row["page"] for row in rows} == {"/", "/cart", "/help", "/search"}
