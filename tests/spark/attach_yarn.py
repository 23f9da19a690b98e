"""An unmodified job on YARN is attached to, sized and given back: `attach_story.py`, all on this machine.

    python attach_yarn.py

prints what it saw, and exits with 1 if that is not as it should be.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import attach_story
from hadoop import Hadoop
from pyspark.find_spark_home import _find_spark_home

_PATIENCE_S = 900.0


def main() -> None:
    jars = f"local:{_find_spark_home()}/jars/*"  # not to be sent: every node has them
    submit = {"PYSPARK_SUBMIT_ARGS": f"--conf spark.yarn.jars={jars} pyspark-shell"}
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch,
        Hadoop(Path(scratch) / "hadoop", yarn=True) as hadoop,
    ):
        ended = subprocess.run(
            [sys.executable, attach_story.__file__, "yarn", str(Path(scratch) / "job")],
            env={**os.environ, **hadoop.environment, **submit},
            stdout=subprocess.PIPE,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    print(ended.stdout)
    if ended.returncode != 0:
        sys.exit("the job failed")
    seen = json.loads(ended.stdout.splitlines()[-1])
    if not (
        1 <= seen["sized"] < 4 and seen["is active"] and seen["rows"] == seen["distinct"] == seen["highest"] + 1
    ):
        sys.exit("not as it should be")


if __name__ == "__main__":
    main()
