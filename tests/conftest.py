"""The order of the tests: those that need a Spark take minutes, so they come last. No test fails for being slow on
a machine that does other things, too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
os.environ.pop("COLUMNS", None)  # pytest-xdist tells its workers how wide the terminal is; tests say it themselves

_SPARK = Path(__file__).parent / "spark"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.is_relative_to(_SPARK))
