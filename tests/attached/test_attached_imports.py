"""What attaching needs beside the PySpark that a cluster has: nothing of elastream's extras."""

from __future__ import annotations

import subprocess
import sys

_CODE = """
import sys
for absent in "pyspark py4j pandas pyarrow psutil google.protobuf fastapi matplotlib jinja2".split():
    sys.modules[absent] = None
import elastream.attached.attaching, elastream.attached.advising, elastream.attached.submitting
print("there")
"""


def test_a_plain_installation_is_enough() -> None:
    ended = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, timeout=600)
    assert (ended.stdout, ended.stderr) == ("there\n", "")
