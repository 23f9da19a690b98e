from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def without_waiting_for_the_disk(request: pytest.FixtureRequest) -> Iterator[None]:
    """A kill loses nothing that was written, synced or not: only what is about power losses waits for the disk."""
    with pytest.MonkeyPatch.context() as patched:
        if request.module.__name__ != "test_power_loss":
            patched.setenv("ELASTREAM_SYNC", "off")
        yield
