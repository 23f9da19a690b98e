"""The command as a process: interrupted, and with a reader that went away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S, wait_until

# as from a terminal, even where the tests run in the background and would hand down a SIGINT that is ignored
_COMMAND = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from elastream.cli import main
main()
"""

_VERY_LONG = """\
name: very long
duration: 1000 d
operators:
  source: {source: true, load: 500}
  map: {reads: source, capacity: 100}
"""


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_an_interrupted_run_says_so_in_one_line(tmp_path: Path, flags: tuple[str, ...]) -> None:
    scenario, out = tmp_path / "very-long.yaml", tmp_path / "out"
    scenario.write_text(_VERY_LONG)
    command = [sys.executable, "-c", _COMMAND, "simulate", str(scenario), "--out", str(out), *flags]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: out.exists() or process.poll() is not None)  # made right before the run begins
            process.send_signal(signal.SIGINT)
            printed, said = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()

    assert (process.returncode, printed, said) == (130, "", "interrupted\n")


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_reader_that_goes_away_is_no_error_to_talk_about(flags: tuple[str, ...]) -> None:
    """As in `elastream policies | head -1`, with a head that is quicker than any real one."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [sys.executable, "-c", _COMMAND, "policies", *flags]
        ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    finally:
        os.close(writing)

    assert ended.returncode == 1
    assert ended.stderr == ""
