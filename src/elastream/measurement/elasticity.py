"""How well the supply of instances follows the demand: the measures of SPEC's cloud group (Herbst et al. 2016).

    accuracy_over  = area of supply above demand / T       accuracy_under = area of demand above supply / T
    timeshare_over = time with too many instances / T      timeshare_under = time with too few / T
    excess_time    = (time to finish all records − T) / T  what is left to do when the load ends
    cost           = one unit for each instance and minute

Demand is what an ideal autoscaler would have at each moment: it knows the operators' true capacities, and acts
at once and for free. With several operators the areas add up, and a moment counts as under-provisioned when any
of them has too few, so a moment can be both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """A span of time with one demand and one supply of each operator."""

    lasts_s: float
    demand: Mapping[str, int]
    supply: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Elasticity:
    accuracy_over: float
    """Instances too many, on the average of the time."""
    accuracy_under: float
    timeshare_over: float
    timeshare_under: float
    excess_time: float
    reconfigurations: int
    cost: float
    """Instance minutes."""


def elasticity(moments: Iterable[Moment], *, excess_s: float, reconfigurations: int) -> Elasticity:
    total_s = area_over = area_under = time_over = time_under = instance_s = 0.0
    for moment in moments:
        differences = [moment.supply[name] - demand for name, demand in moment.demand.items()]
        over = sum(difference for difference in differences if difference > 0)
        under = -sum(difference for difference in differences if difference < 0)
        total_s += moment.lasts_s
        area_over += over * moment.lasts_s
        area_under += under * moment.lasts_s
        time_over += moment.lasts_s if over else 0.0
        time_under += moment.lasts_s if under else 0.0
        instance_s += sum(moment.supply.values()) * moment.lasts_s
    if total_s <= 0:
        raise ValueError("elasticity is measured over some time, found none")
    return Elasticity(
        accuracy_over=area_over / total_s,
        accuracy_under=area_under / total_s,
        timeshare_over=time_over / total_s,
        timeshare_under=time_under / total_s,
        excess_time=excess_s / total_s,
        reconfigurations=reconfigurations,
        cost=instance_s / 60,
    )
