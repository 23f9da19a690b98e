"""What an agent can read: the operating system, an engine's JSON, and both of them together."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from elastream.agents.engine_metrics import json_metrics, metrics_of, write_metrics
from elastream.agents.os_metrics import MachineMetrics, ProcessMetrics, read_os
from elastream.agents.reader import Reader
from elastream.errors import ElastreamError, InvalidInput
from elastream.policies.rules.metrics import METRICS, Unit
from tests.patience import PATIENCE_S, wait_until

OF_SYSTEM = frozenset({"cpu_utilization", "memory_utilization", "disk_utilization", "open_files"})


def test_the_machine_is_read_in_the_units_of_the_rules(tmp_path: Path) -> None:
    readers = MachineMetrics(tmp_path).readers()
    found = read_os(readers, frozenset(METRICS))
    assert found.keys() == readers.keys()
    assert {"cpu_utilization", "memory_utilization", "disk_utilization"} <= found.keys() <= OF_SYSTEM
    for name, value in found.items():
        assert 0 <= value <= (100 if METRICS[name].unit is Unit.PERCENT else 1e9)
    assert found["memory_utilization"] > 0


def test_only_what_is_wanted_is_read(tmp_path: Path) -> None:
    def never() -> float:
        raise AssertionError("nobody asked for it")

    readers = {**MachineMetrics(tmp_path).readers(), "open_files": never}
    assert read_os(readers, frozenset({"memory_utilization"})).keys() == {"memory_utilization"}


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[str]]:
    """A process with a child that computes, and with open files of its own."""
    program = (
        "import subprocess, sys\n"
        "files = [open(sys.executable) for _ in range(40)]\n"
        "child = subprocess.Popen([sys.executable, '-c', 'while True: pass'])\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
        "child.kill()\n"
        "child.wait()\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.communicate()


def test_a_process_is_read_with_its_children(busy: subprocess.Popen[str], tmp_path: Path) -> None:
    readers = ProcessMetrics(busy.pid, tmp_path, cores=1.0).readers()
    cpu_utilization = 0.0
    while cpu_utilization == 0.0:  # a clock tick of the child's work
        cpu_utilization = read_os(readers, OF_SYSTEM)["cpu_utilization"]
    assert 0 < cpu_utilization <= 100
    found = read_os(readers, OF_SYSTEM)
    assert found.keys() == OF_SYSTEM
    assert found["open_files"] >= 40
    assert 0 < found["memory_utilization"] < 100


def test_of_a_process_that_has_ended_there_is_nothing_to_read(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True) as process:
        readers = ProcessMetrics(process.pid, tmp_path).readers()
        process.communicate("\n")
    assert read_os(readers, OF_SYSTEM).keys() <= {"disk_utilization"}


def test_what_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no process 999999999 to be read"):
        ProcessMetrics(999_999_999, tmp_path)
    with pytest.raises(InvalidInput, match="there is no such folder"):
        MachineMetrics(tmp_path / "nowhere")


# Engines


def test_an_operator_tells_of_itself_through_a_file(tmp_path: Path) -> None:
    write_metrics(tmp_path / "map.json", {"queue_length": 12, "latency": 0.5})
    read = json_metrics(str(tmp_path / "map.json"), ("map",))
    assert read() == {"map": {"queue_length": 12.0, "latency": 0.5}}
    write_metrics(tmp_path / "map.json", {"queue_length": 13})
    assert read() == {"map": {"queue_length": 13.0}}
    assert [path.name for path in tmp_path.iterdir()] == ["map.json"]


def test_an_engine_tells_of_its_operators_over_http() -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"map": {"state_size": 4096}, "other": {"latency": 1}}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        assert json_metrics(url, ("map", "sink"))() == {"map": {"state_size": 4096.0}}
        server.shutdown()
    with pytest.raises(ElastreamError, match="does not answer"):
        json_metrics(url, ("map",))()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "metrics are a JSON object, found []"),
        ({"queue_lenght": 1}, "unknown metric 'queue_lenght' (did you mean 'queue_length'?)"),
        ({"queue_length": "many"}, "queue_length must be a number from 0 to 1e+18, found 'many'"),
        ({"queue_length": True}, "queue_length must be a number from 0 to 1e+18, found True"),
        ({"queue_length": -1}, "queue_length must be a number from 0 to 1e+18, found -1"),
        ({"queue_length": float("nan")}, "queue_length must be a number from 0 to 1e+18, found nan"),
        ({"map": {"latency": 1}, "sink": 3}, "sink: metrics are a JSON object, found 3"),
    ],
)
def test_what_is_no_metric_is_refused(data: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        metrics_of(data, ("map", "sink") if "map" in data else ("map",), place="here")
    assert str(error.value).startswith("here: ")
    assert message in str(error.value)


def test_bare_metrics_are_those_of_the_only_operator() -> None:
    assert metrics_of({"latency": 1}, ("map",), place="here") == {"map": {"latency": 1.0}}
    with pytest.raises(InvalidInput, match="of which operator are these metrics, of map, sink"):
        metrics_of({"latency": 1}, ("map", "sink"), place="here")


# Both


def a_reader(tmp_path: Path, *engine: Any) -> Reader:
    return Reader(operators=("map", "sink"), os_metrics=MachineMetrics(tmp_path), engine=engine)


def test_what_the_engine_says_goes_before_what_the_system_says(tmp_path: Path) -> None:
    reader = a_reader(tmp_path, lambda: {"map": {"memory_utilization": 250.0, "latency": 1.0}})
    wanted = (frozenset({"memory_utilization"}), frozenset({"memory_utilization", "latency"}))
    of_map, of_sink = reader(wanted)
    assert of_map == {"memory_utilization": 250.0}
    assert of_sink.keys() == {"memory_utilization"}
    assert of_sink["memory_utilization"] <= 100
    assert set(reader.offers) == set(METRICS)


def test_an_engine_that_does_not_answer_is_logged_once_and_again_after_it_did(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answers: Iterator[Mapping[str, Any] | None] = iter([None, None, {}, None])

    def engine() -> Mapping[str, Mapping[str, float]]:
        found = next(answers)
        if found is None:
            raise ElastreamError("no answer")
        return found

    reader = a_reader(tmp_path, lambda: {"map": {"queue_length": 7.0, "latency": 1.0}}, engine)
    for _ in range(4):
        assert reader((frozenset({"queue_length"}), frozenset())) == [{"queue_length": 7.0}, {}], (
            "the other goes on"
        )
    assert caplog.messages == ["no answer", "no answer"]


def test_what_several_say_is_taken_together_and_the_later_one_knows_better(tmp_path: Path) -> None:
    reader = a_reader(
        tmp_path, lambda: {"map": {"latency": 1.0, "queue_length": 1.0}}, lambda: {"map": {"latency": 2.0}}
    )
    wanted = frozenset({"latency", "queue_length"})
    assert reader((wanted, wanted)) == [{"latency": 2.0, "queue_length": 1.0}, {}]


def test_one_that_hangs_holds_up_no_other_and_is_not_asked_again_meanwhile(tmp_path: Path) -> None:
    over, asked = threading.Event(), []

    def hangs() -> Mapping[str, Mapping[str, float]]:
        asked.append(1)
        over.wait(PATIENCE_S)
        return {"map": {"latency": 2.0}}

    reader = a_reader(tmp_path, hangs, lambda: {"map": {"queue_length": 1.0}})
    wanted = (frozenset({"latency", "queue_length"}), frozenset[str]())
    first = [reader(wanted, 0.05)[0] for _ in range(3)]
    assert [sorted(found) for found in first] == [["queue_length"]] * 3
    assert len(asked) == 1
    over.set()
    wait_until(lambda: reader(wanted, 0.05)[0] == {"latency": 2.0, "queue_length": 1.0})


def test_without_an_engine_the_systems_metrics_are_offered(tmp_path: Path) -> None:
    reader = a_reader(tmp_path)
    assert set(reader.offers) <= OF_SYSTEM
    assert reader((frozenset(), frozenset())) == [{}, {}]
