"""Gesscale's testbed as a simulated engine: one operator on ten nodes far from each other, under taxi rides.

Of the paper's ten machines one is the master and one holds storage and monitoring; eight run instances, one each.
Delays between them are from 0 to 300 ms, and an action stops the job for 120 s. The paper publishes no more, so
the rest is chosen by these arguments:

- `alpha_per_s`: what an ideal autoscaler has on average follows from each row of table III (cost per minute, less
  the instances too many, plus those too few): 3.1 to 3.3. An instance that does 80 records/s gives that.
- `beta`: the paper calls it inefficiency, so below 1; 0.9 makes eight instances do the work of six and a half.
- `gamma`: the largest delay costs what one instance does alone.
- `replay_speed`: in table III the time that is left to do at the end is near to the number of actions times 120 s
  (0.163, 0.115, 0.126, 0.042 of the run, beside 0.174, 0.132, 0.111, 0.083), so what an action held up was hardly
  ever made up for. The source replays its records by their times, and does not hurry for those that are late.
- The nodes lie at random in a square, drawn by the seed, with 300 ms between the two that are farthest apart.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.simulated.capacity import PowerLaw
from elastream.engines.simulated.engine_model import EngineModel, OperatorModel, SourceModel
from elastream.nodes import Node, NodePool
from experiments.workloads.taxi_rides import TaxiRides

SOURCE, OPERATOR = "rides", "hotspots"
WORKERS = 8
LARGEST_DELAY_S = 0.3
_QUEUE_RECORDS = 2_000  # some seconds of the peak
_STEP_S = 2.0
_NOISE = 0.03


@dataclass(frozen=True, kw_only=True)
class FogTestbed:
    alpha_per_s: float = 80.0
    beta: float = 0.9
    largest_delay_costs: float = 1.0
    """Instances that work alone: γ is so many times α for each 300 ms."""
    downtime_s: float = 120.0
    replay_speed: float = 1.0
    rides: TaxiRides = field(default_factory=TaxiRides)

    def model(self, seed: int) -> EngineModel:
        """With one instance, as nothing is known at first; the same for all algorithms."""
        names = (SOURCE, OPERATOR)
        capacity = PowerLaw(
            per_instance_per_s=self.alpha_per_s,
            exponent=self.beta,
            delay_cost=self.largest_delay_costs * self.alpha_per_s / LARGEST_DELAY_S,
        )
        return EngineModel(
            dataflow=Dataflow.of((Operator(name=name, source=name == SOURCE) for name in names), [names]),
            sources={SOURCE: SourceModel(load=self.rides.load(seed), replay_speed=self.replay_speed)},
            operators={OPERATOR: OperatorModel(capacity=capacity, queue_records=_QUEUE_RECORDS)},
            initial_plan=Plan({OPERATOR: 1}),
            step_s=_STEP_S,
            noise=_NOISE,
            seed=seed,
            downtime_s=self.downtime_s,
            nodes=far_apart(seed),
        )


def far_apart(seed: int, *, workers: int = WORKERS) -> NodePool:
    rng = random.Random(f"nodes {seed}")
    places = [(rng.random(), rng.random()) for _ in range(workers)]
    distances = [[math.dist(one, other) for other in places] for one in places]
    scale = LARGEST_DELAY_S / max(map(max, distances))
    return NodePool(
        nodes=tuple(Node(name=f"node{number}") for number in range(1, workers + 1)),
        delays_s=tuple(tuple(distance * scale for distance in row) for row in distances),
    )
