"""What is installed by request only: `pip install 'elastream[spark]'` and so on, as pyproject.toml declares it.

Whatever needs such a module imports it where it needs it, so that the rest works without. That it is missing is
told here, once, with what to install.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec

from elastream.errors import ElastreamError

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "spark": ("pyspark", "py4j", "pyarrow", "pandas", "google.protobuf"),
    "kafka": ("confluent_kafka",),
    "web": ("fastapi", "starlette", "uvicorn", "prometheus_client"),
    "plot": ("matplotlib",),
    "report": ("jinja2", "markupsafe", "matplotlib"),
    "agents": ("msgpack", "psutil"),
}
"""The modules that each brings. Of those that several bring, the first one is told."""


class MissingExtra(ElastreamError):  # noqa: N818 - reads better where it is raised
    def __init__(self, extra: str, module: str) -> None:
        self.extra = extra
        super().__init__(f"{module} is not installed: pip install 'elastream[{extra}]'")


def missing(extra: str) -> MissingExtra | None:
    """What an extra lacks, without importing it; None where it is there."""
    return next((MissingExtra(extra, module) for module in EXTRAS[extra] if not _is_there(module)), None)


def require(extra: str) -> None:
    """Before work that would be lost when the import fails at its end."""
    if (lacks := missing(extra)) is not None:
        raise lacks


@contextmanager
def extras_told() -> Iterator[None]:
    """An import within it that fails for want of an extra becomes an error that names it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise _told(error) from None


def _told(error: ModuleNotFoundError) -> Exception:
    name = error.name or ""
    for extra, modules in EXTRAS.items():
        for module in modules:
            if name == module or name.startswith(f"{module}.") or module.startswith(f"{name}."):
                return MissingExtra(extra, module)
    return error


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False
