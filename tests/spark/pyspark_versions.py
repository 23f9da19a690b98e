"""Attached jobs on the versions of PySpark that people have, each in an environment of its own.

    python pyspark_versions.py FOLDER VERSION...

For each a virtual environment in the folder gets that PySpark and elastream without any extra, and runs
`attach_story.py` (an unmodified job is sized and given back) and `give_back_story.py` (dynamic allocation is
taken over and works again) on a cluster inside of the driver's process. Prints what each saw; exits with 1 if one
failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_PROJECT = _HERE.parents[1]
_PATIENCE_S = 1200.0
_GIVEN_BACK = {"most": 2, "taken": 1, "grown": 2, "shrunk": 1, "grown by dynamic allocation": 2}


def environment(folder: Path, version: str) -> Path:
    """Its Python."""
    python = folder / f"pyspark-{version}" / "bin" / "python"
    ready = python.parents[1] / ".ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "setuptools<81", "wheel", f"pyspark=={version}.*"], check=True)
        subprocess.run([*install, "--editable", str(_PROJECT)], check=True)
        ready.touch()
    return python


def story(python: Path, name: str, *arguments: str) -> Any:
    # what an environment of a user would not have: no other Spark, and no module of ours but the package
    given = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")}
    ended = subprocess.run(
        [str(python), str(_HERE / name), *arguments],
        env={**given, "PYSPARK_PYTHON": str(python)},
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    told = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    if ended.returncode != 0 or not told:
        raise AssertionError(f"{name}: exit status {ended.returncode}\n{ended.stderr[-3000:]}")
    return json.loads(told[-1])


def check(python: Path) -> str:
    with tempfile.TemporaryDirectory(prefix="elastream-", ignore_cleanup_errors=True) as folder:
        seen = story(python, "attach_story.py", "local-cluster[4,1,600]", folder)
    assert 1 <= seen["sized"] < 4, seen
    assert seen["is active"], seen
    assert seen["rows"] == seen["distinct"] == seen["highest"] + 1, f"lost or twice: {seen}"
    returned = story(python, "give_back_story.py")
    assert returned == _GIVEN_BACK, returned
    return f"4 executors, then {seen['sized']}, then 4; {seen['rows']} rows, none lost or twice; {returned}"


def main(folder: str, *versions: str) -> int:
    failed = 0
    for version in versions:
        try:
            python = environment(Path(folder).absolute(), version)
            exact = [str(python), "-c", "import pyspark; print(pyspark.__version__)"]
            found = subprocess.run(exact, capture_output=True, text=True, check=True).stdout.strip()
            print(f"PySpark {found}: {check(python)}", flush=True)
        except (AssertionError, subprocess.SubprocessError) as error:
            failed += 1
            print(f"PySpark {version}: FAILED: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
