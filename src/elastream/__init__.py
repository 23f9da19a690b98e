"""elastream keeps a streaming pipeline at the smallest parallelism that keeps up with its input.

The names below are what a program, a policy or an engine of yours may use. All else is internal, and may change
with any version. Each is imported when it is first asked for: `import elastream` is quick, and imports no Spark.
"""

import importlib
import logging
from typing import TYPE_CHECKING, Any

from elastream._version import __version__ as __version__

if TYPE_CHECKING:
    from elastream.attached.attaching import attach as attach
    from elastream.dataflow import Dataflow as Dataflow
    from elastream.dataflow import Operator as Operator
    from elastream.dataflow import Plan as Plan
    from elastream.engines.spark.pipeline import Pipeline as Pipeline
    from elastream.errors import ElastreamError as ElastreamError
    from elastream.errors import InvalidInput as InvalidInput
    from elastream.manager.decision import Decision as Decision
    from elastream.manager.engine import Clock as Clock
    from elastream.manager.engine import Engine as Engine
    from elastream.manager.engine import EngineFailed as EngineFailed
    from elastream.manager.engine import EngineKind as EngineKind
    from elastream.manager.engine import Job as Job
    from elastream.manager.engine import RescaleOutcome as RescaleOutcome
    from elastream.measurement import Measurement as Measurement
    from elastream.measurement import Reading as Reading
    from elastream.measurement import Snapshot as Snapshot
    from elastream.measurement.snapshot_format import read_snapshot as read_snapshot
    from elastream.options import option as option
    from elastream.policies.catalog import Policy as Policy
    from elastream.policies.catalog import policy as policy
    from elastream.policies.evaluate import evaluate as evaluate
    from elastream.policies.knowledge import Knowledge as Knowledge
    from elastream.policies.proposal import Advice as Advice
    from elastream.policies.proposal import Proposal as Proposal
    from elastream.policies.proposal import Reason as Reason
    from elastream.policies.proposal import ReasonKind as ReasonKind
    from elastream.running import run as run

_HOMES = {
    "Advice": "elastream.policies.proposal",
    "Clock": "elastream.manager.engine",
    "Dataflow": "elastream.dataflow",
    "Decision": "elastream.manager.decision",
    "ElastreamError": "elastream.errors",
    "Engine": "elastream.manager.engine",
    "EngineFailed": "elastream.manager.engine",
    "EngineKind": "elastream.manager.engine",
    "InvalidInput": "elastream.errors",
    "Job": "elastream.manager.engine",
    "Knowledge": "elastream.policies.knowledge",
    "Measurement": "elastream.measurement",
    "Operator": "elastream.dataflow",
    "Pipeline": "elastream.engines.spark.pipeline",
    "Plan": "elastream.dataflow",
    "Policy": "elastream.policies.catalog",
    "Proposal": "elastream.policies.proposal",
    "Reading": "elastream.measurement",
    "Reason": "elastream.policies.proposal",
    "ReasonKind": "elastream.policies.proposal",
    "RescaleOutcome": "elastream.manager.engine",
    "Snapshot": "elastream.measurement",
    "attach": "elastream.attached.attaching",
    "evaluate": "elastream.policies.evaluate",
    "option": "elastream.options",
    "policy": "elastream.policies.catalog",
    "read_snapshot": "elastream.measurement.snapshot_format",
    "run": "elastream.running",
}
"""The module of each name, as above: those lines are for type checkers, these for Python."""

__all__ = [*_HOMES, "__version__"]

logging.getLogger("elastream").addHandler(logging.NullHandler())  # whoever imports elastream decides what is shown


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'elastream' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
