"""A script as it is, whose session is attached: what `elastream submit` does.

The script runs in this process as `python script.py` would run it. The session is attached when the script gets it
for the first time. What the script raises, or the status that it exits with, is what is seen.
"""

from __future__ import annotations

import functools
import logging
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elastream.attached.attaching import Attached, attach

_log = logging.getLogger(__name__)


def submit(script: Path, arguments: Sequence[str], **options: Any) -> Attached | None:
    """Run it; returns what was attached, which is detached by then."""
    with _attaching(options) as attached, _as_script(script, arguments):
        runpy.run_path(str(script), run_name="__main__")
    return attached[0] if attached else None


@contextmanager
def _as_script(script: Path, arguments: Sequence[str]) -> Iterator[None]:
    """The script finds its own arguments, and the modules beside it."""
    argv, path = sys.argv, sys.path[:]
    sys.argv, sys.path[0:0] = [str(script), *arguments], [str(script.resolve().parent)]
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path


@contextmanager
def _attaching(options: dict[str, Any]) -> Iterator[list[Attached]]:
    """While it lasts, the first session that is made is attached; one that cannot be is left as it is."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.Builder
    original: Callable[..., Any] = builder.getOrCreate
    attached: list[Attached] = []
    tried: list[bool] = []

    @functools.wraps(original)
    def get_or_create(self: Any) -> Any:
        session = original(self)
        if not tried:
            tried.append(True)
            try:
                attached.append(attach(session, **options))
            except Exception as error:
                _log.warning("not attached, the job runs as it is: %s", error)
        return session

    builder.getOrCreate = get_or_create
    try:
        yield attached
    finally:
        builder.getOrCreate = original
        for one in attached:
            one.detach()
