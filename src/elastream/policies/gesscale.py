"""Gesscale: a capacity model learned while running, and the right node to add or remove (Arkian et al. 2021).

For each operator on its own, in every window:

- **Overload** (Algorithm 1): all operators before it have high back pressure and it has none. One more instance
  (Algorithm 3), on the node that keeps the largest delay between its nodes lowest.
- Otherwise **too many** (Algorithms 2 and 4): as many fewer as the performance model (`mst/`) allows, leaving the
  nodes whose leaving lowers the delay most, while what is left sustains the input rate with `spare` to spare.

What the paper's pseudo-code says otherwise is built as its text means it. Algorithm 1 looks at one operator
upstream, the text at all of them. Algorithm 2 tests the model with the present instances, the text with fewer.
Algorithm 4 goes on while the throughput is *at most* the input rate, which is reversed; mended, it still takes one
step too many and can end below the least parallelism; and it keeps the largest delay of the present nodes while
nodes leave. Here each number of instances is looked at with the nodes that would be left.

Beyond the paper, each an option, all of them on:

- `grow_by_model` (A): it grows when more arrives than the model says that its nodes sustain, at once to what is
  enough. What waits for it counts as well, by `catch_up_s`, unless its source does not hurry.
- `removal_pays_after` (B): a removal must pay for its action. Two or more do at once; one does when it was
  possible for several times as long as an action takes.
- `hold_for_backlog` (C): once there is a model, back pressure while no more arrives than is sustained is that of a
  backlog, and no reason to grow.
- `short_costs`: what is expected to arrive counts as well, as far as forecasts have earned trust (`foresight.py`);
  and what a calendar announces, with or without it.
- `prior`: from the first measurement on all three parameters are known, with their errors (`mst/prior.py`).

Every proposal says what share of the load it expects to be sustained, so that the manager can judge it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from elastream.measurement import Snapshot
from elastream.measurement.back_pressure import is_overloaded
from elastream.measurement.flow import flow, flow_at
from elastream.nodes.choice import NEAREST, AtRandom, NodeChoice
from elastream.nodes.site import Placed
from elastream.options import check_bounds, option
from elastream.policies.advice import because, bounded, measured, no_data
from elastream.policies.bottleneck import expected_share
from elastream.policies.catalog import policy
from elastream.policies.foresight import NOTHING_FORESEEN, Foresight, foresee
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge
from elastream.policies.mst.calibration import calibrate, calibrate_proportional
from elastream.policies.mst.learning import HIGH
from elastream.policies.mst.mst_model import MstModel
from elastream.policies.mst.prior import calibrate_with_prior
from elastream.policies.mst.sized_operator import SizedOperator
from elastream.policies.mst.sizing import Sized, enough, fewest
from elastream.policies.mst.watching import Watching, held_up_per_s, unhurried
from elastream.policies.placing import placed_advice, site_of
from elastream.policies.proposal import Advice, Proposal, ReasonKind
from elastream.texts import rate_text

_NEEDS = "wait_out_s of every operator that has another one after it, sources included; or the records in and out"
# the paper asks every minute, and neither takes actions back nor corrects its model by a ratio
_AS_PUBLISHED = {
    "grow_by_model": False,
    "removal_pays_after": 0,
    "hold_for_backlog": False,
    "prior": False,
    "spare": 0.2,  # without anything else that keeps it from removing what it needs again
}
_WORTHWHILE = 0.1  # of what as many instances would bring in proportion: less is nothing
_KNOBS = {"interval_s": 60, "target_rate_ratio": 0, "rollback_drop": None, "scale_down_delay_s": 0}


@policy(
    "gesscale",
    summary="Learns what an operator sustains, by instances and delay; grows and shrinks by it, on the best nodes",
    needs=_NEEDS,
    good_for="nodes with delays between them; actions that are expensive; engines that do not measure useful time",
    knobs=_KNOBS,
)
@policy(
    "gesscale-paper",
    summary="Gesscale as published: one more instance at a time, whatever the model knows",
    needs=_NEEDS,
    good_for="comparing with the paper",
    preset=_AS_PUBLISHED,
    knobs=_KNOBS,
)
@policy(
    "mdl-nlunaware",
    summary="Gesscale's baseline MDL-NLUnaware: a proportional model, nodes at random",
    needs=_NEEDS,
    good_for="a baseline to compare with",
    preset={**_AS_PUBLISHED, "latency_aware": False},
    knobs=_KNOBS,
)
@dataclass(frozen=True, kw_only=True)
class Gesscale:
    high_back_pressure: float = option(
        HIGH, "more back pressure than this is high", unit="share of the window", least=0, most=1
    )
    spare: float = option(
        0.1,
        "a scale-down leaves this share of the capacity unused: the threshold on DT",
        unit="share",
        least=0,
        most=0.99,
    )
    least_gain: float = option(
        0.0,
        "a scale-up that gains less, for each unit of what its nodes cost, is skipped",
        unit="share of the present capacity",
    )
    grow_by_model: bool = option(True, "grow when more arrives than the model says is sustained, to enough")
    removal_pays_after: float = option(
        5.0,
        "one instance goes once that was possible for so many times as long as an action takes; two go at once",
        unit="times an action",
        least=0,
    )
    hold_for_backlog: bool = option(True, "once there is a model, the back pressure of a backlog is no overload")
    prior: bool = option(True, "what is usual stands in for what was not measured; if false as the paper fits")
    catch_up_s: float = option(
        3600.0, "how fast a backlog should be gone, when growing by the model", unit="s", least=1
    )
    short_costs: float | None = option(
        None,
        "look ahead, when growing by the model: how many times as bad a missing instance is as an idle one",
        unit="times",
        least=1,
        most=1e6,
    )
    latency_aware: bool = option(True, "know of delays; if false a proportional model, and nodes at random")
    seed: int = option(0, "for nodes at random")

    def __post_init__(self) -> None:
        check_bounds(self)

    @property
    def name(self) -> str:
        if not self.latency_aware:
            return "mdl-nlunaware"
        beyond = self.grow_by_model or self.removal_pays_after or self.hold_for_backlog or self.prior
        return "gesscale" if beyond else "gesscale-paper"

    def __call__(self, snapshot: Snapshot, knowledge: Knowledge = NOTHING_KNOWN) -> Proposal:
        ahead = self._ahead(snapshot, knowledge)
        advice: dict[str, Advice] = {}
        limits: dict[str, float] = {}
        for name in snapshot.dataflow.scalable:
            operator = self._operator(snapshot, knowledge, name, advice, ahead)
            advice[name] = self._advice(operator, measured(snapshot, name))
            limit = operator.limit_per_s(advice[name], high=self.high_back_pressure)
            if limit is not None:
                limits[name] = limit
        share = expected_share(snapshot, limits) if limits else None
        return Proposal(
            policy=self.name,
            advice=advice,
            reasons=tuple(ahead.reasons(snapshot.source_rates)),
            expected_share=share,
            outlook=ahead.outlooks,
        )

    def remember(self, snapshot: Snapshot, knowledge: Knowledge) -> Knowledge:
        """Since when an operator could do with fewer, and which sources do not hurry."""
        knowledge = knowledge.forecasting(snapshot, wanted=self.short_costs is not None)
        ahead = self._ahead(snapshot, knowledge)
        known = knowledge.watching.removable_since_s
        since_s = {
            name: known.get(name, knowledge.watched_s)
            for name in snapshot.dataflow.scalable
            if self._fewest(self._operator(snapshot, knowledge, name, {}, ahead)) is not None
        }
        watching = Watching(removable_since_s=since_s, unhurried=unhurried(snapshot, knowledge.watching.unhurried))
        return replace(knowledge, watching=watching)

    def _ahead(self, snapshot: Snapshot, knowledge: Knowledge) -> Foresight:
        if not self.grow_by_model:
            return NOTHING_FORESEEN
        return foresee(snapshot, knowledge, snapshot.source_rates, short_costs=self.short_costs)

    def _operator(
        self,
        snapshot: Snapshot,
        knowledge: Knowledge,
        name: str,
        advised: Mapping[str, Advice],
        ahead: Foresight,
    ) -> SizedOperator:
        soon, later = dict(snapshot.source_rates), dict(snapshot.source_rates)
        for source, one in ahead.sources.items():  # an action is too long to take what still arrives for gone
            soon[source] = max(soon[source], one.soon_per_s)
            later[source] = max(soon[source], one.later_per_s)
        extra = held_up_per_s(snapshot, self.catch_up_s, unhurried=knowledge.watching.unhurried)
        since_s = knowledge.watching.removable_since_s.get(name, knowledge.watched_s)
        return SizedOperator(
            snapshot=snapshot,
            model=self._model(knowledge, name),
            points=knowledge.sustained_by(name),
            site=site_of(snapshot, name, self._choice(snapshot, name), advised),
            arriving_per_s=flow(snapshot).required_per_s.get(name),
            to_catch_up_per_s=flow_at(snapshot, source_rates=soon, extra_per_s=extra).required_per_s.get(name),
            later_per_s=flow_at(snapshot, source_rates=later, extra_per_s=extra).required_per_s.get(name, 0.0),
            removable_for_s=knowledge.watched_s - since_s,
            action_s=knowledge.action_s,
        )

    def _model(self, knowledge: Knowledge, name: str) -> MstModel | None:
        points = knowledge.sustained_by(name)
        if not self.latency_aware:
            return calibrate_proportional(points)
        return calibrate_with_prior(points) if self.prior else calibrate(points)

    def _choice(self, snapshot: Snapshot, name: str) -> NodeChoice:
        return NEAREST if self.latency_aware else AtRandom(f"{self.seed} {name} {snapshot.at_s}")

    # Analyze

    def _advice(self, operator: SizedOperator, advice: Advice) -> Advice:
        if advice.parallelism is None:
            return advice
        advice = replace(advice, target_per_s=operator.arriving_per_s)
        if operator.model is not None:
            text = "; ".join((f"sustains {operator.model}", *operator.model.notes))
            advice = because(advice, ReasonKind.LEARNED, text)
        overloaded = is_overloaded(operator.snapshot, advice.operator, high=self.high_back_pressure)
        if overloaded is None:
            return no_data(advice, "the back pressure of it or of an operator before it is not known")
        if overloaded:
            advice = because(advice, ReasonKind.BOTTLENECK, operator.overload_text)
        if operator.has_model and (overloaded or operator.is_well_known):  # an overload tells it, too
            return self._by_model(operator, advice, overloaded=overloaded)
        return self._one_more(operator, advice) if overloaded else self._not_overloaded(operator, advice)

    def _by_model(self, operator: SizedOperator, advice: Advice, *, overloaded: bool) -> Advice:
        """What arrives, and what waits, beside what is sustained (A and C)."""
        wanted, sustained = operator.to_catch_up_per_s or 0.0, operator.sustained_per_s(overloaded=overloaded)
        if wanted > sustained and self.grow_by_model:
            return self._enough(operator, replace(advice, target_per_s=operator.later_per_s), sustained)
        if not overloaded:
            return self._not_overloaded(operator, advice)
        if wanted > sustained or not self.hold_for_backlog:
            return self._one_more(operator, advice)
        text = f"sustains {rate_text(sustained)}, and {rate_text(wanted)} are enough for what arrives and for its"
        return because(advice, ReasonKind.HELD, f"{text} backlog in {self.catch_up_s:g} s: no reason to grow")

    # Plan: scaling up

    def _enough(self, operator: SizedOperator, advice: Advice, sustained: float) -> Advice:
        assert operator.model is not None  # or it were not calibrated
        wanted = advice.target_per_s or 0.0
        text = f"{operator.arriving_text(wanted)}, and {advice.current:,} sustain {rate_text(sustained)}"
        sized = enough(operator.model, operator.site, wanted, most=operator.most)
        if sized is None:
            return self._one_more(operator, because(advice, ReasonKind.FORMULA, text))
        advice = because(advice, ReasonKind.FORMULA, f"{text}: {self._more_text(operator, sized)}")
        efficiency = operator.efficiency(sized, sustained)
        if efficiency < _WORTHWHILE:
            text = f"more instances bring {max(0.0, efficiency):.0%} of what they should: not worth an action"
            return because(advice, ReasonKind.HELD, text)
        return self._grown(operator, advice, sized.placed)

    def _more_text(self, operator: SizedOperator, sized: Sized) -> str:
        assert operator.model is not None  # or nothing were sized
        error = operator.model.std_per_s(sized.placed.instances, sized.placed.delay_s)
        text = f"{sized.placed.instances:,} should sustain {rate_text(sized.mst_per_s)} (± {rate_text(error)})"
        return f"{text}; no further, as {sized.stopped_by}" if sized.stopped_by else text

    def _one_more(self, operator: SizedOperator, advice: Advice) -> Advice:
        """Algorithm 3."""
        advice = because(advice, ReasonKind.FORMULA, "overloaded: one more")
        more = next(operator.site.larger(most=operator.most), None)
        if more is not None:
            return self._grown(operator, advice, more)
        return placed_advice(operator.snapshot, advice, operator.site, advice.current + 1)

    def _grown(self, operator: SizedOperator, advice: Advice, placed: Placed) -> Advice:
        """Unless it gains too little for what it costs (IV-D)."""
        gain = operator.gain_per_cost(placed)
        if gain is not None and gain < self.least_gain:
            text = f"{placed.instances - advice.current} more would gain {gain:.1%} for each unit of cost"
            return because(advice, ReasonKind.HELD, f"{text}, less than {self.least_gain:.1%}")
        return placed_advice(operator.snapshot, advice, operator.site, placed.instances, placed)

    # Plan: scaling down

    def _not_overloaded(self, operator: SizedOperator, advice: Advice) -> Advice:
        """Algorithms 2 and 4."""
        node = operator.snapshot.dataflow[advice.operator]
        if operator.arriving_per_s is None:
            return because(advice, ReasonKind.NO_DATA, "its input rate is not known, so it is not shrunk")
        if operator.model is None:
            return because(advice, ReasonKind.NO_DATA, "never seen at its limit, so it is not shrunk")
        if advice.current == 1 or advice.current <= node.min_parallelism:
            return bounded(node, advice, advice.current)
        sized, need = self._fewest(operator), self._need(operator)
        if sized is None:
            return because(advice, ReasonKind.FORMULA, self._kept_text(operator, need))
        advice = because(advice, ReasonKind.FORMULA, self._fewer_text(sized, need))
        if not self._pays(operator, advice.current - sized.placed.instances):
            text = f"one fewer must pay for its action of {operator.action_s:.0f} s: it was possible for"
            waits_s = self.removal_pays_after * operator.action_s
            return because(
                advice, ReasonKind.HELD, f"{text} {operator.removable_for_s:.0f} s, and waits for {waits_s:.0f} s"
            )
        return placed_advice(operator.snapshot, advice, operator.site, sized.placed.instances, sized.placed)

    def _need(self, operator: SizedOperator) -> float:
        """What must still be sustained with fewer: by the model not what a backlog lets it do just now."""
        if self.grow_by_model and operator.to_catch_up_per_s is not None:
            return operator.later_per_s
        return max(operator.arriving_per_s or 0.0, operator.observed_per_s)

    def _fewest(self, operator: SizedOperator) -> Sized | None:
        if operator.model is None or operator.arriving_per_s is None:
            return None
        need = self._need(operator) / (1 - self.spare)
        return fewest(operator.model, operator.site, need, least=operator.least)

    def _pays(self, operator: SizedOperator, fewer: int) -> bool:
        return fewer > 1 or operator.removable_for_s >= self.removal_pays_after * operator.action_s

    def _fewer_text(self, sized: Sized, need: float) -> str:
        left = 1 - need / sized.mst_per_s
        text = f"{sized.placed.instances:,} should sustain {rate_text(sized.mst_per_s)}"
        return f"{text}, of which {rate_text(need)} leaves {left:.0%} unused: at least {self.spare:.0%}"

    def _kept_text(self, operator: SizedOperator, need: float) -> str:
        one_less = next(operator.site.smaller(least=1))
        model = operator.model
        assert model is not None  # or nothing is shrunk
        beyond = model.beyond(one_less.instances, one_less.delay_s)
        if beyond is not None:
            return f"not shrunk, as {beyond}"
        sustained = rate_text(model.mst_per_s(one_less.instances, one_less.delay_s))
        found = f"{one_less.instances:,} would sustain {sustained}"
        return f"{found}, not enough for {rate_text(need)} with {self.spare:.0%} unused"
