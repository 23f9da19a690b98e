"""The order of the tests, and who runs them where several processes do (`pytest --dist loadgroup`).

Those that need a Spark take minutes, so they come last. Those that share a Spark stay in one process; the others,
which start what they need, are free to go wherever there is room. No test fails for being slow on a machine that
does other things, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

_SPARK = Path(__file__).parent / "spark"
_ONE_SESSION, _ONE_BROKER = "one session of Spark", "one broker of Kafka"


@pytest.hookimpl(tryfirst=True)  # before the groups are looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: (item.path.is_relative_to(_SPARK), _group(item) != _ONE_SESSION))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))


def _group(item: pytest.Item) -> str:
    fixtures = getattr(item, "fixturenames", ())
    if "spark" in fixtures:
        return _ONE_SESSION
    if "broker" in fixtures:
        return _ONE_BROKER
    return item.nodeid if item.path.is_relative_to(_SPARK) else str(item.path)
