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

Beyond the paper (`by_input_rate`): once the model knows how instances work side by side, an overloaded operator
gets at once what its input rate and its backlog ask for, and nothing while it works its backlog off in time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from elastream.measurement import Snapshot
from elastream.measurement.back_pressure import back_pressure, is_overloaded
from elastream.measurement.flow import catch_up_per_s, flow, flow_at
from elastream.nodes.choice import NEAREST, AtRandom, NodeChoice
from elastream.nodes.site import Placed, Site
from elastream.options import check_bounds, option
from elastream.policies.advice import because, bounded, measured, no_data
from elastream.policies.catalog import policy
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge
from elastream.policies.mst.calibration import calibrate, calibrate_proportional
from elastream.policies.mst.mst_model import MstModel
from elastream.policies.mst.sizing import Sized, enough, fewest
from elastream.policies.placing import placed_advice, site_of
from elastream.policies.proposal import Advice, Proposal, ReasonKind
from elastream.texts import rate_text

_NEEDS = "wait_out_s of every operator that has another one after it, sources included; or the records in and out"
# the paper asks every minute, and neither takes actions back nor corrects its model by a ratio
_KNOBS = {"interval_s": 60, "target_rate_ratio": 0, "rollback_drop": None, "scale_down_delay_s": 0}


@policy(
    "gesscale",
    summary="Learns what an operator sustains, by instances and delay; says on which nodes it should run",
    needs=_NEEDS,
    good_for="nodes with delays between them; actions that are expensive; engines that do not measure useful time",
    knobs=_KNOBS,
)
@policy(
    "gesscale-paper",
    summary="Gesscale as published: one more instance at a time, whatever the model knows",
    needs=_NEEDS,
    good_for="comparing with the paper",
    preset={"by_input_rate": False},
    knobs=_KNOBS,
)
@policy(
    "mdl-nlunaware",
    summary="Gesscale's baseline MDL-NLUnaware: a proportional model, nodes at random",
    needs=_NEEDS,
    good_for="a baseline to compare with",
    preset={"by_input_rate": False, "latency_aware": False},
    knobs=_KNOBS,
)
@dataclass(frozen=True, kw_only=True)
class Gesscale:
    high_back_pressure: float = option(
        0.5, "more back pressure than this is high", unit="share of the window", least=0, most=1
    )
    spare: float = option(
        0.2,
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
    by_input_rate: bool = option(True, "beyond the paper: grow at once by what the input rate and the model say")
    catch_up_s: float = option(
        1800.0, "how fast a backlog should be gone, when growing by the input rate", unit="s", least=1
    )
    latency_aware: bool = option(True, "know of delays; if false a proportional model, and nodes at random")
    seed: int = option(0, "for nodes at random")

    def __post_init__(self) -> None:
        check_bounds(self)

    @property
    def name(self) -> str:
        if not self.latency_aware:
            return "mdl-nlunaware"
        return "gesscale" if self.by_input_rate else "gesscale-paper"

    def __call__(self, snapshot: Snapshot, knowledge: Knowledge = NOTHING_KNOWN) -> Proposal:
        arriving = flow(snapshot).required_per_s
        waiting = catch_up_per_s(snapshot, self.catch_up_s)
        to_catch_up = flow_at(snapshot, extra_per_s=waiting).required_per_s
        advice: dict[str, Advice] = {}
        for name in snapshot.dataflow.scalable:
            operator = _Operator(
                snapshot=snapshot,
                model=self._model(knowledge, name),
                site=site_of(snapshot, name, self._choice(snapshot, name), advice),
                arriving_per_s=arriving.get(name),
                to_catch_up_per_s=to_catch_up.get(name),
            )
            advice[name] = self._advice(operator, measured(snapshot, name))
        return Proposal(policy=self.name, advice=advice)

    def _model(self, knowledge: Knowledge, name: str) -> MstModel | None:
        points = knowledge.sustained_by(name)
        return calibrate(points) if self.latency_aware else calibrate_proportional(points)

    def _choice(self, snapshot: Snapshot, name: str) -> NodeChoice:
        return NEAREST if self.latency_aware else AtRandom(f"{self.seed} {name} {snapshot.at_s}")

    # Analyze

    def _advice(self, operator: _Operator, advice: Advice) -> Advice:
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
            return self._overloaded(operator, because(advice, ReasonKind.BOTTLENECK, operator.overload_text))
        return self._not_overloaded(operator, advice)

    # Plan: scaling up

    def _overloaded(self, operator: _Operator, advice: Advice) -> Advice:
        model, wanted = operator.model, operator.to_catch_up_per_s
        if self.by_input_rate and model is not None and model.is_full and wanted is not None:
            sustained = advice.observed_per_s or 0.0
            advice = replace(advice, target_per_s=wanted)
            if sustained >= wanted:
                text = f"sustains {rate_text(sustained)} and needs {rate_text(wanted)} to work off its backlog"
                return because(advice, ReasonKind.HELD, f"{text} in {self.catch_up_s:g} s")
            sized = enough(model, operator.site, wanted, most=operator.most)
            if sized is not None:
                text = f"{sized.placed.instances:,} should sustain {rate_text(sized.mst_per_s)}"
                missing = f"; no further, as {sized.stopped_by}" if sized.stopped_by else ""
                text = f"needs {rate_text(wanted)}, {text}{missing}"
                return self._grown(operator, because(advice, ReasonKind.FORMULA, text), sized.placed)
        return self._one_more(operator, advice)

    def _one_more(self, operator: _Operator, advice: Advice) -> Advice:
        """Algorithm 3."""
        advice = because(advice, ReasonKind.FORMULA, "overloaded: one more")
        more = next(operator.site.larger(most=operator.most), None)
        if more is not None:
            return self._grown(operator, advice, more)
        return placed_advice(operator.snapshot, advice, operator.site, advice.current + 1)

    def _grown(self, operator: _Operator, advice: Advice, placed: Placed) -> Advice:
        """Unless it gains too little for what it costs (IV-D)."""
        gain = operator.gain_per_cost(placed)
        if gain is not None and gain < self.least_gain:
            text = f"{placed.instances - advice.current} more would gain {gain:.1%} for each unit of cost"
            return because(advice, ReasonKind.HELD, f"{text}, less than {self.least_gain:.1%}")
        return placed_advice(operator.snapshot, advice, operator.site, placed.instances, placed)

    # Plan: scaling down

    def _not_overloaded(self, operator: _Operator, advice: Advice) -> Advice:
        """Algorithms 2 and 4."""
        node = operator.snapshot.dataflow[advice.operator]
        if advice.target_per_s is None:
            return because(advice, ReasonKind.NO_DATA, "its input rate is not known, so it is not shrunk")
        if operator.model is None:
            return because(advice, ReasonKind.NO_DATA, "never seen at its limit, so it is not shrunk")
        need = max(advice.target_per_s, advice.observed_per_s or 0.0)
        if advice.current == 1 or advice.current <= node.min_parallelism:
            return bounded(node, advice, advice.current)
        sized = fewest(operator.model, operator.site, need / (1 - self.spare), least=node.min_parallelism)
        if sized is None:
            return because(advice, ReasonKind.FORMULA, self._kept_text(operator, need))
        advice = because(advice, ReasonKind.FORMULA, self._fewer_text(sized, need))
        return placed_advice(operator.snapshot, advice, operator.site, sized.placed.instances, sized.placed)

    def _fewer_text(self, sized: Sized, need: float) -> str:
        left = 1 - need / sized.mst_per_s
        text = f"{sized.placed.instances:,} should sustain {rate_text(sized.mst_per_s)}"
        return f"{text}, of which {rate_text(need)} leaves {left:.0%} unused: at least {self.spare:.0%}"

    def _kept_text(self, operator: _Operator, need: float) -> str:
        one_less = next(operator.site.smaller(least=1))
        model = operator.model
        assert model is not None  # or nothing is shrunk
        beyond = model.beyond(one_less.instances, one_less.delay_s)
        if beyond is not None:
            return f"not shrunk, as {beyond}"
        sustained = rate_text(model.mst_per_s(one_less.instances, one_less.delay_s))
        found = f"{one_less.instances:,} would sustain {sustained}"
        return f"{found}, not enough for {rate_text(need)} with {self.spare:.0%} unused"


@dataclass(frozen=True, kw_only=True)
class _Operator:
    """What is known of an operator in this window."""

    snapshot: Snapshot
    model: MstModel | None
    site: Site
    arriving_per_s: float | None
    to_catch_up_per_s: float | None

    @property
    def most(self) -> float:
        operator = self.snapshot.dataflow[self._name]
        return self.site.instances if operator.fixed else operator.most

    @property
    def _name(self) -> str:
        return self.site.operator

    @property
    def overload_text(self) -> str:
        before: Mapping[str, float | None] = {
            producer: back_pressure(self.snapshot, producer)
            for producer in self.snapshot.dataflow.upstream(self._name)
        }
        held = ", ".join(f"{name} for {share or 0.0:.0%} of the window" for name, share in before.items())
        return f"holds back {held}, and is not held back itself"

    def gain_per_cost(self, placed: Placed) -> float | None:
        """By how much more it should sustain, as a share of now; None where the model cannot say."""
        model, now = self.model, self.site.now
        if model is None or any(model.beyond(at.instances, at.delay_s) for at in (now, placed)):
            return None
        before = model.mst_per_s(now.instances, now.delay_s)
        cost = self.site.cost_of(placed)
        if before <= 0 or cost <= 0:
            return None
        return (model.mst_per_s(placed.instances, placed.delay_s) / before - 1) / cost
