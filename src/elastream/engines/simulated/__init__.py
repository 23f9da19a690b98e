"""A streaming engine that is only a model, for experiments, what-if questions and tests."""

from elastream.engines.simulated.capacity import Amdahl, Capacity, PowerLaw, Usl
from elastream.engines.simulated.engine import SimulatedEngine
from elastream.engines.simulated.engine_model import DowntimeScope, EngineModel, OperatorModel, SourceModel
from elastream.engines.simulated.ideal import Ideal
from elastream.engines.simulated.scenario import Scenario, read_scenario

__all__ = [
    "Amdahl",
    "Capacity",
    "DowntimeScope",
    "EngineModel",
    "Ideal",
    "OperatorModel",
    "PowerLaw",
    "Scenario",
    "SimulatedEngine",
    "SourceModel",
    "Usl",
    "read_scenario",
]
