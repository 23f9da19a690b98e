"""What Prometheus scrapes: its values, and that Prometheus's own tool has nothing to say against it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving import Served, eventually, word_count

from elastream.manager.events import Acted, Decided
from elastream.measurement.executor import ExecutorReading
from elastream.testing import alike, chain, snapshot_of

DEPLOY = Path(__file__).parents[2] / "deploy"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(found: Samples, name: str, **labels: str) -> float | None:
    return found.get((name, tuple(sorted({"pipeline": "word count", **labels}.items()))))


def complaints(*arguments: str, given: str = "") -> str:
    """What promtool has to say against it; nothing where it accepts."""
    program = shutil.which("promtool")
    if program is None:
        assert os.environ.get("CI") != "true", "promtool is missing: make test-tools"
        pytest.skip("promtool is missing: make test-tools")
    done = subprocess.run([program, *arguments], input=given, capture_output=True, text=True, check=False)
    return "" if (done.returncode, done.stderr) == (0, "") else done.stdout + done.stderr


class TestMetrics:
    def test_they_are_the_newest_window_and_counts_since_the_beginning(self, shown: Served) -> None:
        run = word_count()
        windows, newest = len(run.snapshots), run.snapshots[-1]
        eventually("all is shown", lambda: shown.feed.history.totals.windows == windows)
        found = samples(shown.client.get("metrics").text)
        for name in ("words", "counts"):
            rates = newest.measurements[name]
            assert of(found, "elastream_operator_parallelism", operator=name) == newest.plan[name]
            observed = of(found, "elastream_operator_observed_records_per_second", operator=name)
            assert observed == pytest.approx(rates.observed_per_s)
            assert of(found, "elastream_operator_utilization_ratio", operator=name) == rates.utilization
            taken = sum(reading.records_in for s in run.snapshots for reading in s.measurements[name].readings)
            assert of(found, "elastream_operator_records_total", operator=name) == pytest.approx(taken)
        assert of(found, "elastream_windows_total") == windows
        decided = sum(isinstance(event, Decided) for event in run.events)
        assert of(found, "elastream_decisions_total", kind="rescale", dry_run="false") == decided
        acted = sum(isinstance(event, Acted) for event in run.events)
        assert of(found, "elastream_actions_total", outcome="done") == acted > 0
        used = sum(s.plan.total * s.readings[0].window_s for s in run.snapshots)
        assert of(found, "elastream_instance_seconds_total") == pytest.approx(used)

    def test_exactly_one_health_and_one_phase_hold(self, shown: Served) -> None:
        eventually("a phase", lambda: shown.feed.history.manager.phase is not None)
        found = samples(shown.client.get("metrics").text)
        for name, labels in (
            ("elastream_operator_health", {"operator": "words"}),
            ("elastream_manager_phase", {}),
        ):
            values = [v for (n, ls), v in found.items() if n == name and set(labels.items()) <= set(ls)]
            assert (sum(values), len(values) > 3) == (1.0, True)

    def test_what_was_not_measured_has_no_sample(self, run: Served) -> None:
        name = 'a "quoted" \\ name\n<b>'
        window = snapshot_of(
            edges=chain("in", name), source_rates={"in": 5}, readings=alike(name, records_per_s=5)
        )
        run.feed.snapshot(window)
        eventually("it is shown", lambda: run.feed.history.window is not None)
        text = run.client.get("metrics").text
        found = samples(text)
        assert of(found, "elastream_operator_parallelism", operator=name) == 1
        assert of(found, "elastream_operator_latency_seconds", operator=name) is None
        assert of(found, "elastream_source_offered_records_per_second", source="in") == 5
        assert of(found, "elastream_source_achieved_records_per_second", source="in") is None
        assert complaints("check", "metrics", given=text) == ""

    def test_late_records_are_counted_from_the_beginning_where_there_is_event_time(self, run: Served) -> None:
        window = snapshot_of(
            edges=chain("in", "windows", "sink"),
            source_rates={"in": 5},
            readings=[replace(one, records_late=7.0) for one in alike("windows")] + alike("sink"),
        )
        run.feed.snapshot(window)
        run.feed.snapshot(replace(window, at_s=70.0))
        eventually("both are shown", lambda: run.feed.history.totals.windows == 2)
        text = run.client.get("metrics").text
        found = samples(text)
        assert of(found, "elastream_operator_late_records_total", operator="windows") == 14
        assert of(found, "elastream_operator_late_records_total", operator="sink") is None
        assert complaints("check", "metrics", given=text) == ""

    def test_a_latency_that_was_asked_for_and_for_how_long_it_was_kept(self, run: Served) -> None:
        for at_s, latency_s in ((60.0, 4.0), (120.0, 6.0)):
            readings = [replace(one, latency_s=latency_s) for one in alike("map", window_s=60.0)]
            window = snapshot_of(edges=chain("in", "map"), source_rates={"in": 5}, readings=readings)
            run.feed.snapshot(replace(window, at_s=at_s, latency_target_s=5.0))
        eventually("both are shown", lambda: run.feed.history.totals.windows == 2)
        text = run.client.get("metrics").text
        found = samples(text)
        assert of(found, "elastream_latency_seconds") == 6
        assert of(found, "elastream_latency_target_seconds") == 5
        assert of(found, "elastream_latency_asked_seconds_total") == 120
        assert of(found, "elastream_latency_kept_seconds_total") == 60
        assert complaints("check", "metrics", given=text) == ""

    def test_executors_have_theirs(self, run: Served) -> None:
        window = snapshot_of(edges=chain("in", "map"), source_rates={"in": 5})
        executor = ExecutorReading(id="7", host="10.0.0.7", cores=4, active_tasks=2, memory_bytes=2**20)
        run.feed.snapshot(replace(window, executors=(executor, replace(executor, id="8", node="b", leaving=True))))
        eventually("it is shown", lambda: run.feed.history.window is not None)
        text = run.client.get("metrics").text
        found = samples(text)
        assert of(found, "elastream_executor_cores", executor="7") == 4
        assert of(found, "elastream_executor_active_tasks", executor="7") == 2
        assert of(found, "elastream_executor_memory_bytes", executor="7") == 2**20
        assert of(found, "elastream_executor_busy_cores", executor="7") is None, "not known yet"
        assert [of(found, "elastream_executor_leaving", executor=name) for name in "78"] == [0, 1]
        assert of(found, "elastream_executor_info", executor="8", host="10.0.0.7", node="b") == 1
        assert complaints("check", "metrics", given=text) == ""

    def test_prometheus_accepts_them(self, run: Served, shown: Served) -> None:
        assert complaints("check", "metrics", given=run.client.get("metrics").text) == ""
        assert complaints("check", "metrics", given=shown.client.get("metrics").text) == ""

    def test_openmetrics_is_served_where_it_is_asked_for(self, shown: Served) -> None:
        answer = shown.client.get("metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        assert answer.text.endswith("# EOF\n")

    @pytest.mark.parametrize("version", ["abc", "1.x.0", "", "9" * 5_000, "-1", "1.0.0.0.0"])
    @pytest.mark.parametrize("kind", ["application/openmetrics-text", "text/plain"])
    def test_whatever_version_is_asked_for_there_is_an_answer(
        self, shown: Served, kind: str, version: str
    ) -> None:
        answer = shown.client.get("metrics", headers={"Accept": f"{kind}; version={version}"})
        assert answer.status_code == 200
        assert "elastream_windows" in answer.text

    def test_operators_that_are_gone_are_forgotten(self, run: Served) -> None:
        for turn in range(3):
            name = f"map{turn}"
            window = snapshot_of(edges=chain("in", name), source_rates={"in": 5}, readings=alike(name))
            run.feed.snapshot(replace(window, at_s=60.0 * (turn + 1)))
        eventually("all are shown", lambda: run.feed.history.totals.windows == 3)
        text = run.client.get("metrics").text
        assert "map2" in text
        assert "map1" not in text


class TestDeploy:
    def test_prometheus_refuses_what_is_wrong(self) -> None:
        """The check itself can fail."""
        assert "error" in complaints("check", "metrics", given="elastream_x{ 1\n")

    def test_prometheus_accepts_the_rules_and_they_do_what_they_say(self) -> None:
        assert complaints("check", "rules", str(DEPLOY / "prometheus" / "elastream-rules.yaml")) == ""
        assert complaints("test", "rules", str(DEPLOY / "prometheus" / "elastream-rules-test.yaml")) == ""

    @pytest.mark.parametrize("file", ["grafana/elastream.json", "prometheus/elastream-rules.yaml"])
    def test_they_look_only_at_metrics_that_there_are(self, shown: Served, file: str) -> None:
        text = (DEPLOY / file).read_text(encoding="utf-8")
        families = {line.split()[2] for line in shown.client.get("metrics").text.splitlines() if "# TYPE" in line}
        named = set(re.findall(r"(?<![:\w])elastream_\w+", text))
        assert named, "nothing was found to look for"
        assert {name for name in named if name not in families} == set()

    def test_the_dashboard_is_one_that_grafana_can_import(self) -> None:
        board = json.loads((DEPLOY / "grafana" / "elastream.json").read_text(encoding="utf-8"))
        assert (board["title"], board["uid"]) == ("elastream", "elastream")
        ids = [panel["id"] for panel in board["panels"]]
        assert len(ids) == len(set(ids)) > 10
        assert all(target["expr"] for panel in board["panels"] for target in panel["targets"])
