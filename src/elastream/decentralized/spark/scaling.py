"""The metric collector and the trigger: the first two parts of the scaling module (the thesis, Figure 4.1).

The collector watches what arrives in the inbox. At every full period of the clock the trigger asks the policy
with what arrived since the last change had time to show, and tells the protocol. All instances decide at the
same times: the policy's probabilities add up to what is needed only if everybody decides on the same load.
"""

from __future__ import annotations

import random
import threading
import time

from elastream.decentralized.errors import IllegalEvent
from elastream.decentralized.protocol.decision import Duplicate, Leave, Situation, decide
from elastream.decentralized.protocol.instance import Place
from elastream.decentralized.protocol.load_meter import LoadMeter
from elastream.decentralized.protocol.messages import operator_of
from elastream.decentralized.spark.inbox import Received
from elastream.decentralized.spark.living_protocol import LivingProtocol, Record
from elastream.decentralized.spark.settings import RunSettings

_LOOK_S = 0.5
_TELL_S = 2.0
_SETTLING = 0.35
"""The share of a period that a change is given to show in what arrives."""
_USUAL_BATCHES = 3
"""What comes in as many intervals may wait without being late: a batch is under way, one is collected, one is
on its way through the sender."""


class MetricCollector:
    def __init__(self, inbox: Received, protocol: LivingProtocol, record: Record) -> None:
        self._inbox = inbox
        self._protocol = protocol
        self._record = record
        self._received = LoadMeter()
        self._lock = threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def received_per_s(self, since_s: float) -> float | None:
        with self._lock:
            return self._received.per_s(since_s)

    def _run(self) -> None:
        told_s = 0.0
        while True:
            now_s = time.time()
            with self._lock:
                self._received.observe(now_s, self._inbox.arrived())
            if now_s - told_s >= _TELL_S:
                told_s = now_s
                self._tell()
                self._inbox.forget()
            time.sleep(_LOOK_S)

    def _tell(self) -> None:
        pending = self._inbox.pending()
        self._record(
            "metrics",
            phase=self._protocol.state.phase,
            received=self._received.total,
            processed=self._received.total - pending,
            sent=self._protocol.records_sent,
            pending=pending,
        )


class ScalingTrigger:
    def __init__(
        self,
        place: Place,
        settings: RunSettings,
        collector: MetricCollector,
        inbox: Received,
        protocol: LivingProtocol,
        record: Record,
    ) -> None:
        self._place = place
        self._settings = settings
        self._collector = collector
        self._inbox = inbox
        self._protocol = protocol
        self._record = record
        self._rng = random.Random(f"{settings.seed} {place.me} {protocol.incarnation}")

    def start(self) -> None:
        if self._place.fixed:
            self._record("kept", why=self._place.fixed)
            return
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        period_s = self._settings.period_s
        while True:
            turn_s = (time.time() // period_s + 1) * period_s
            time.sleep(max(0.0, turn_s - time.time()))
            if self._protocol.may_decide:
                self._decide(turn_s - (1 - _SETTLING) * period_s)

    def _decide(self, since_s: float) -> None:
        parts = self._inbox.parts()
        load_per_s = 0.0 if parts == 0 else self._collector.received_per_s(since_s)
        if load_per_s is None:
            self._record("decided", action="Stay", why="too little has arrived to know the load")
            return
        usual = load_per_s * self._settings.batch_interval_s * _USUAL_BATCHES
        now = Situation(
            load_per_s=load_per_s,
            capacity_per_s=self._settings.capacities[operator_of(self._place.me)],
            keeper=self._place.keeper,
            instances=self._inbox.among(),
            overdue=max(0.0, self._inbox.pending() - usual),
            parts=parts,
            least=self._place.least,
            most=self._place.most,
        )
        action = decide(self._settings.policy, now, self._rng)
        self._record("decided", action=type(action).__name__, load_per_s=load_per_s, why=action.why)
        try:
            match action:
                case Duplicate(times=times):
                    self._protocol.duplicate(times)
                case Leave():
                    self._protocol.leave()
        except IllegalEvent as error:  # it was told something in between
            self._record("refused", why=str(error))
