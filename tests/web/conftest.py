from __future__ import annotations

from collections.abc import Iterator

import pytest
from serving import Served, in_order, served, show, word_count


@pytest.fixture(scope="module")
def shown() -> Iterator[Served]:
    """Ten minutes of a word count are shown; tests of a module share it, and none of them changes it."""
    with served() as run:
        show(run.feed, in_order(word_count()))
        yield run


@pytest.fixture
def run() -> Iterator[Served]:
    with served() as found:
        yield found
