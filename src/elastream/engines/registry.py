"""The kinds of engines that `elastream run --engine NAME` knows: elastream's own, and those of other packages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, cast

from elastream.errors import InvalidInput
from elastream.manager.engine import EngineKind, Job, check_calls
from elastream.options import build
from elastream.plugins import Registry, check_class

_OWN = {
    # by name, so that Spark is imported by who runs on it only
    "spark": "elastream.engines.spark.kind:Spark",
    "simulated": "elastream.engines.simulated.kind:Simulated",
}


def _checked(name: str, found: Any, origin: str) -> type[Any]:
    kind = check_class(found, ("read",))
    if not is_dataclass(kind):
        raise InvalidInput(f"{kind.__name__} is not a dataclass, whose fields would be its options")
    return kind


ENGINES: Registry[type[Any]] = Registry(
    group="elastream.engines", what="an engine", own=lambda: _OWN, check=_checked
)


def engine_kind(name: str, options: Mapping[str, Any] | None = None) -> EngineKind:
    """The kind of engine of that name, with options as a user wrote them."""
    return cast(EngineKind, build(ENGINES.named(name), options or {}, place=f"engine {name}"))


def read_job(name: str, kind: EngineKind, target: Any) -> Job:
    """What the engine of that name is to run."""
    job = kind.read(target)
    check_calls(f"engine {name}: the job that it has read", job, ("graph", "running"))
    return job
