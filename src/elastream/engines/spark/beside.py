"""Modules beside the file of a pipeline: found as with `python FILE`, but after all others.

So a file called numbers.py does not take the place of Python's own. Spark's Python workers do not find them; what
they are to run of them is sent to them. A process that writes to a feed is started through this module:

    python -m elastream.engines.spark.beside FEED FOLDER MODULE ARGUMENTS...
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType


@contextmanager
def importing_from(folder: Path) -> Iterator[None]:
    """Within it modules are imported from the folder, too, and are then sent to Spark's workers as they are."""
    from pyspark import cloudpickle

    before = set(sys.modules)
    _append(folder)
    yield
    for name in set(sys.modules) - before:
        if "." not in name and _lies_in(sys.modules[name], folder):  # a package stands for its modules
            cloudpickle.register_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]


def started_beside(folder: Path, generator: tuple[str, ...]) -> tuple[str, ...]:
    """The module and arguments that start another module which may lie in the folder."""
    return (__spec__.name, str(folder), *generator)


def _append(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _lies_in(module: ModuleType, folder: Path) -> bool:
    places = list(getattr(module, "__path__", ())) or [getattr(module, "__file__", None)]
    return any(place is not None and Path(place).parent == folder for place in places)


def _main(feed: str, folder: str, module: str, *arguments: str) -> None:
    _append(Path(folder))
    sys.argv = [module, feed, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
