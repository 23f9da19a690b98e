"""What some tests need and not every machine has: without it they are skipped, or fail with CI=true."""

from __future__ import annotations

import os

import pytest

from elastream.engines.spark.jars import JarSet


def need_jars(jars: JarSet, what: str) -> None:
    if missing := jars.missing():
        why = f"{len(missing)} jars of {what} are missing, the first {missing[0].file}: see `make test-jars`"
        if os.environ.get("CI") == "true":
            pytest.fail(f"with CI=true the tests on {what} must run: {why}")
        pytest.skip(why)
