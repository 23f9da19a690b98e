"""The shapes of the six Nexmark queries that DS2 was evaluated with (Kalavri et al., OSDI 2018, section 5.1).

A shape is what a scaling policy gets to see of a query: its operators, who reads whom, how many records come out
for each that goes in, and where records wait for a window. It does not compute anything. The ratios follow from
the benchmark's generator: for 50 events there are 1 person, 3 auctions and 46 bids; an auction has one of 5
categories, a person lives in one of 6 states; sellers and bidders are among the 1,000 newest persons.

What a record costs is not part of a shape: that is a matter of the engine, and of whoever runs it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from elastream.dataflow import Dataflow, Operator

BIDS, AUCTIONS, PERSONS, SINK = "bids", "auctions", "persons", "sink"

_BIDS_PER_PERSON = 46.0
_BIDS_PER_AUCTION = 46.0 / 3.0
_SLIDE_S, _WINDOW_S = 5.0, 10.0  # the defaults of Apache Beam's Nexmark, for sliding and for tumbling windows


@dataclass(frozen=True, kw_only=True, slots=True)
class ShapeOperator:
    name: str
    reads: tuple[str, ...]
    selectivity: float = 1.0
    """Records out for each record in."""
    shuffles: bool = False
    """What it puts out is sent by key to all instances of the next operator."""
    window_s: float | None = None
    """Its results come when a window fires, as often as this."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    name: str
    does: str
    main: str
    """The operator that the query is about."""
    operators: tuple[ShapeOperator, ...]
    """In topological order."""

    @cached_property
    def sources(self) -> tuple[str, ...]:
        own = {operator.name for operator in self.operators}
        read = dict.fromkeys(name for operator in self.operators for name in operator.reads)
        return tuple(name for name in read if name not in own)

    def dataflow(self, max_parallelism: int | None = None) -> Dataflow:
        sources = [Operator(name=name, source=True) for name in self.sources]
        operators = [Operator(name=o.name, max_parallelism=max_parallelism) for o in self.operators]
        edges = [(before, operator.name) for operator in self.operators for before in operator.reads]
        return Dataflow.of([*sources, *operators], edges)

    def required_per_s(self, source_rates: Mapping[str, float]) -> Mapping[str, float]:
        """Records per second that reach each operator when everything before it keeps up."""
        put_out = {name: source_rates[name] for name in self.sources}
        required = {}
        for operator in self.operators:
            required[operator.name] = math.fsum(put_out[name] for name in operator.reads)
            put_out[operator.name] = required[operator.name] * operator.selectivity
        return required


Q1 = Shape(
    name="Q1",
    does="map",
    main="map",
    operators=(ShapeOperator(name="map", reads=(BIDS,)), ShapeOperator(name=SINK, reads=("map",))),
)
Q2 = Shape(
    name="Q2",
    does="filter",
    main="filter",
    operators=(
        ShapeOperator(name="filter", reads=(BIDS,), selectivity=1 / 123),  # one auction in 123 is asked for
        ShapeOperator(name=SINK, reads=("filter",)),
    ),
)
Q3 = Shape(
    name="Q3",
    does="incremental join",
    main="join",
    operators=(
        ShapeOperator(name="filter-auctions", reads=(AUCTIONS,), selectivity=1 / 5, shuffles=True),
        ShapeOperator(name="filter-persons", reads=(PERSONS,), selectivity=3 / 6, shuffles=True),
        # on Flink's rates, 100K auctions and 50K persons a second; half of the sellers passed their filter
        ShapeOperator(name="join", reads=("filter-auctions", "filter-persons"), selectivity=1 / 3),
        ShapeOperator(name=SINK, reads=("join",)),
    ),
)
Q5 = Shape(
    name="Q5",
    does="sliding window",
    main="count-bids",
    operators=(
        # each auction is counted in the two windows that overlap
        ShapeOperator(
            name="count-bids", reads=(BIDS,), selectivity=2 / _BIDS_PER_AUCTION, shuffles=True, window_s=_SLIDE_S
        ),
        ShapeOperator(name="hottest", reads=("count-bids",), selectivity=1e-6),
        ShapeOperator(name=SINK, reads=("hottest",)),
    ),
)
Q8 = Shape(
    name="Q8",
    does="tumbling window join",
    main="window-join",
    operators=(
        # of 420K auctions and 120K persons a second, every auction finds its seller, who is new
        ShapeOperator(name="window-join", reads=(PERSONS, AUCTIONS), selectivity=420 / 540, window_s=_WINDOW_S),
        ShapeOperator(name=SINK, reads=("window-join",)),
    ),
)
Q11 = Shape(
    name="Q11",
    does="session window",
    main="sessions",
    operators=(
        # one session for each bidder; unlike other windows they end at all times, here every second
        ShapeOperator(name="sessions", reads=(BIDS,), selectivity=1 / _BIDS_PER_PERSON, window_s=1.0),
        ShapeOperator(name=SINK, reads=("sessions",)),
    ),
)
