"""Which executors are asked for when a job is taken over, sized and given back; Spark's client is not there."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from elastream.attached import executors
from elastream.attached.engine import cores_at
from elastream.attached.executors import ClusterExecutors
from elastream.errors import ElastreamError


@dataclass
class Client:
    """Grants what is asked for at once, up to its room."""

    ids: list[str] = field(default_factory=list)
    room: int = 8
    dynamic: bool = False
    busy: tuple[str, ...] = ()
    calls: list[str] = field(default_factory=list)
    is_stopped: bool = False

    def up(self) -> tuple[str, ...]:
        return tuple(self.ids)

    def request(self, total: int) -> None:
        self.calls.append(f"request {total}")
        while len(self.ids) < min(total, self.room):
            self.ids.append(str(max((int(one) for one in self.ids), default=-1) + 1))

    def decommission(self, names: tuple[str, ...], why: str) -> None:
        self.calls.append(f"decommission {','.join(names)}")
        self.ids = [one for one in self.ids if one not in names]

    def kill_idle(self, names: tuple[str, ...]) -> tuple[str, ...]:
        self.calls.append(f"kill {','.join(names)}")
        self.ids = [one for one in self.ids if one not in names or one in self.busy]
        self.busy = ()
        return names

    def has_active_jobs(self) -> bool:
        return False

    def stop_dynamic_allocation(self) -> bool:
        return self.dynamic

    def start_dynamic_allocation(self) -> None:
        self.calls.append("dynamic allocation")


def holder(
    client: Client, monkeypatch: pytest.MonkeyPatch, *, master: str = "spark://m:7077", **conf: str
) -> ClusterExecutors:
    settings = {f"spark.{name.replace('_', '.')}": value for name, value in conf.items()}
    monkeypatch.setattr(executors, "ExecutorClient", lambda _: client)
    monkeypatch.setattr(executors, "_COME_S", 0.01)
    found = SimpleNamespace(get=lambda name, default=None: settings.get(name, default))
    context: Any = SimpleNamespace(master=master, getConf=lambda: found)
    return ClusterExecutors(SimpleNamespace(sparkContext=context))


def alive() -> None:
    pass


def test_it_begins_as_configured_though_no_executor_is_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    taken = holder(client, monkeypatch, executor_instances="6")
    assert taken.most() == 6
    taken.take(1, 6)
    assert client.calls == ["request 6"]
    taken.change(2, alive)
    assert client.ids == ["0", "1"], "the newest go"
    taken.give_back()
    taken.give_back()
    assert client.calls == ["request 6", "request 2", "kill 2,3,4,5", "request 6"]
    with pytest.raises(ElastreamError, match="given back"):
        taken.change(3, alive)


def test_a_standalone_job_without_limits_gets_everything_back(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(room=8)
    taken = holder(client, monkeypatch)
    assert taken.most() == 1000
    taken.take(1, 20)
    taken.give_back()
    assert client.calls == ["request 20", f"request {2**31 - 1}"]
    assert holder(Client(), monkeypatch, cores_max="12", executor_cores="4").most() == 3


def test_dynamic_allocation_is_stopped_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(dynamic=True, ids=["0", "1", "2"])
    conf = {"dynamicAllocation_initialExecutors": "2", "dynamicAllocation_maxExecutors": "7"}
    taken = holder(client, monkeypatch, master="yarn", **conf)
    assert taken.most() == 7
    taken.take(1, 7)
    taken.give_back()
    assert client.calls == ["request 3", "dynamic allocation"]


def test_executors_are_decommissioned_where_the_job_was_started_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(ids=["0", "1", "10"])
    taken = holder(client, monkeypatch, decommission_enabled="true", executor_instances="3")
    taken.take(1, 3)
    assert taken.change(2, alive) == ""
    assert "decommission 10" in client.calls


def test_busy_ones_go_when_they_are_idle_and_fewer_than_asked_for_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client(busy=("3",), room=4)
    taken = holder(client, monkeypatch, executor_instances="4")
    taken.take(1, 4)
    assert taken.change(3, alive) == ""
    assert client.calls.count("kill 3") == 2
    assert taken.change(6, alive) == "6 were asked for, and 4 are there"


def test_a_session_that_is_stopped_has_nothing_to_give_back(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    taken = holder(client, monkeypatch, executor_instances="2")
    taken.take(1, 2)
    client.is_stopped = True
    taken.give_back()
    assert client.calls == ["request 2"]


def test_a_manager_that_hangs_with_the_lock_does_not_keep_the_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_LOCKED_S", 0.01)
    client = Client()
    taken = holder(client, monkeypatch, executor_instances="2")
    taken.take(1, 2)
    taken._lock.acquire()
    taken.give_back()
    assert client.calls == ["request 2", "request 2"]


def test_the_cores_of_a_batch_are_those_of_its_time() -> None:
    sizes = [(10.0, 4), (20.0, 4), (30.0, 3)]
    assert [cores_at(sizes, at_s) for at_s in (5.0, 10.0, 29.0, 30.0, 99.0)] == [4, 4, 4, 3, 3]
