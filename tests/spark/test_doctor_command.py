"""`elastream doctor --try-spark`: Spark is started and a Python worker answers."""

from __future__ import annotations

import json
import subprocess
import sys

from running import PATIENCE_S


def test_a_start_of_spark() -> None:
    command = [sys.executable, "-c", "from elastream.cli import main; main()", "doctor", "--try-spark", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = {one["check"]: one for one in json.loads(ended.stdout)["findings"]}
    assert "started and answered in" in found["a start of Spark"]["found"]
