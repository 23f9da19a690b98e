"""Control messages through Kafka: a round of the protocol with a receiver that comes back, and a stale process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from running import wait_until

from elastream.dataflow import Dataflow, Operator
from elastream.decentralized.control import Controller
from elastream.decentralized.instance import Phase, Place
from elastream.decentralized.messages import Create, Effect
from elastream.engines.decentralized.folders import RunFolder
from elastream.engines.decentralized.kafka_control import KafkaTransport
from elastream.engines.decentralized.outbox import Outbox
from elastream.engines.decentralized.protocol import Protocol
from elastream.engines.spark.kafka.broker import Broker
from elastream.testing import chain

FLOW = Dataflow.of((Operator(name=name, source=name == "a") for name in "abc"), chain("a", "b", "c"))


class Site:
    """The control side of one instance; a copy that it creates is started beside it."""

    def __init__(self, sites: dict[str, Site], run: RunFolder, broker: Broker, me: str) -> None:
        self.stale: list[str] = []

        def carry_out(effect: Effect) -> None:
            if isinstance(effect, Create) and effect.instance not in sites:
                Site(sites, run, broker, effect.instance)

        def record(event: str, **told: Any) -> None:
            pass

        folder, controller = run.instance(me), Controller(Place.of(me, FLOW, keeper=me.endswith("/0")))
        outbox = Outbox(folder.outbox, lambda successor: run.instance(successor).lane(me))
        self.protocol = Protocol(controller, folder, outbox, carry_out=carry_out, record=record)
        self.protocol.begin()
        self.transport = KafkaTransport(
            self.protocol,
            run,
            servers=broker.servers,
            topics=f"control-{run.path.name}",
            record=record,
            on_stale=self.stale.append,
        )
        sites[me] = self
        self.transport.start()


def test_a_round_of_the_protocol_survives_a_receiver_that_goes_and_comes_back(
    tmp_path: Path, broker: Broker
) -> None:
    run = RunFolder(tmp_path / "kafka-control")
    sites: dict[str, Site] = {}
    try:
        for me in ("a/0", "b/0", "c/0"):
            Site(sites, run, broker, me)
        old = sites.pop("c/0")
        old.transport.stop()
        sites["b/0"].protocol.duplicate(1)
        wait_until(lambda: sites["b/0"].protocol.state.awaited == {"c/0"}, "the other neighbour acknowledges")
        Site(sites, run, broker, "c/0")
        wait_until(
            lambda: all(
                site.protocol.state.phase is Phase.RUNNING and site.protocol.has_said_all
                for site in sites.values()
            ),
            lambda: str({me: site.protocol.state for me, site in sites.items()}),
        )
        assert sites["a/0"].protocol.state.successors == {"b/0", "b/0.1"}
        assert sites["c/0"].protocol.state.predecessors == {"b/0", "b/0.1"}
        assert sites["b/0.1"].protocol.state.successors == {"c/0"}
        assert not any(site.stale for site in sites.values())
    finally:
        for site in sites.values():
            site.transport.stop()


def test_a_stale_process_is_told_so(tmp_path: Path, broker: Broker) -> None:
    run = RunFolder(tmp_path / "kafka-stale")
    sites: dict[str, Site] = {}
    try:
        Site(sites, run, broker, "a/0")
        Site(sites, run, broker, "b/0")
        sites["a/0"].protocol.greeted("b/0", "a/0", 2)  # someone took its place, and was here
        sites["b/0"].protocol.duplicate(1)
        wait_until(lambda: bool(sites["b/0"].stale), "it is told")
        assert sites["b/0"].stale[0] == "start 1 of it is over, start 2 has taken its place"
        assert sites["a/0"].protocol.state.successors == {"b/0"}, "nothing was changed"
    finally:
        for site in sites.values():
            site.transport.stop()
