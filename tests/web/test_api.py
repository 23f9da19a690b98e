"""REST over a real server: what can be asked, who may ask, and what errors look like."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from serving import SCENARIO, TOKEN, WITH_TOKEN, Served, eventually, served, word_count

from elastream.errors import ElastreamError
from elastream.manager.decision import DecisionKind
from elastream.showing.views import ConfigurationView
from elastream.testing import alike, chain, snapshot_of
from elastream.web.address import Address
from elastream.web.feed import Feed
from elastream.web.guard import MOST_BODY, own_hosts, refusal
from elastream.web.problems import ProblemError
from elastream.web.rules_file import RulesFile
from elastream.web.server import Server

RECORDING = ConfigurationView(pipeline="p", shown="recording", policy=None, options=(), knobs=(), acts=False)


def actions_of(run: Served) -> list[str]:
    """What the engine was told to do, as the manager told of it."""
    return [decision.kind for decision in run.feed.history.decisions()]


class TestReading:
    def test_everything_that_is_shown_can_be_asked_for_by_itself(self, shown: Served) -> None:
        whole = shown.client.get("api/v1/run").json()
        for part, name in {"graph": "graph", "snapshot": "window", "history": "history", "cost": "cost"}.items():
            assert shown.client.get(f"api/v1/{part}").json() == whole[name]
        assert shown.client.get("api/v1/decisions").json() == whole["decisions"] != []
        assert shown.client.get("api/v1/events").json() == whole["events"] != []
        assert shown.client.get("api/v1/manager").json() == whole["manager"]

    def test_lists_can_be_asked_for_in_parts(self, shown: Served) -> None:
        events = shown.client.get("api/v1/events").json()
        later = shown.client.get("api/v1/events", params={"after": events[5]["id"], "limit": 3}).json()
        assert later == events[-3:]
        acted = shown.client.get("api/v1/events", params={"kind": "acted"}).json()
        assert acted == [event for event in events if event["kind"] == "acted"] != []

    def test_the_configuration_names_every_knob_with_its_value(self, shown: Served) -> None:
        found = shown.client.get("api/v1/configuration").json()
        assert (found["policy"], found["shown"], found["acts"]) == ("ds2", "simulation", True)
        knobs = {knob["name"]: (knob["value"], knob["unit"]) for knob in found["knobs"]}
        assert knobs["interval_s"] == (3_600.0, "s")
        assert {"target_utilization", "tolerance"} <= {option["name"] for option in found["options"]}

    def test_before_the_first_window_there_is_no_graph_but_a_run(self, run: Served) -> None:
        assert run.client.get("api/v1/run").json()["graph"] is None
        for part in ("graph", "snapshot"):
            answer = run.client.get(f"api/v1/{part}")
            assert (answer.status_code, answer.json()["detail"]) == (404, "nothing was measured yet")
        assert run.client.get("healthz").status_code == 200
        assert run.client.get("readyz").status_code == 503

    def test_it_is_ready_once_windows_come(self, shown: Served) -> None:
        eventually("a window", lambda: shown.feed.history.window is not None)
        assert shown.client.get("readyz").status_code == 200

    def test_names_are_data_whatever_is_in_them(self, run: Served) -> None:
        name = "<script>alert('x')</script>\u2028&amp;"
        found = snapshot_of(edges=chain("in", name), source_rates={"in": 5}, readings=alike(name, records_per_s=5))
        run.feed.snapshot(found)
        eventually("the graph", lambda: run.client.get("api/v1/graph").status_code == 200)
        answer = run.client.get("api/v1/graph")
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert [operator["name"] for operator in answer.json()["operators"]] == ["in", name]
        assert name in run.client.get("api/v1/run").json()["history"]["operators"]


class TestErrors:
    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("GET", "api/v1/nothing", 404),
            ("GET", "nothing.js", 404),
            ("GET", "..%2fapp.py", 404),
            ("POST", "api/v1/graph", 405),
            ("GET", "api/v1/actions/pause", 405),
            ("DELETE", "", 405),
        ],
    )
    def test_are_problems(self, shown: Served, method: str, path: str, status: int) -> None:
        answer = shown.client.request(method, path)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
        assert answer.json()["status"] == status
        assert answer.json()["title"]

    @pytest.mark.parametrize(
        ("path", "params", "field"),
        [
            ("api/v1/events", {"limit": "many"}, "query.limit"),
            ("api/v1/events", {"limit": "0"}, "query.limit"),
            ("api/v1/decisions", {"after": "-1"}, "query.after"),
        ],
    )
    def test_a_bad_value_is_named_by_its_field(
        self, shown: Served, path: str, params: dict[str, str], field: str
    ) -> None:
        answer = shown.client.get(path, params=params)
        assert answer.status_code == 422
        assert [error["field"] for error in answer.json()["errors"]] == [field]

    @pytest.mark.parametrize(
        ("path", "body", "field"),
        [
            ("scale", {"parallelism": {"words": 0}}, "body.parallelism.words"),
            ("scale", {"parallelism": {"words": "3"}}, "body.parallelism.words"),
            ("scale", {"parallelism": {}}, "body.parallelism"),
            ("scale", {}, "body.parallelism"),
            ("scale", {"parallelism": {"nobody": 3}}, "body.parallelism.nobody"),
            ("bounds", {"operator": "words", "least": 9, "most": 2}, "body.least"),
            ("bounds", {"operator": "sentences", "most": 2}, "body.operator"),
            ("dry-run", {"on": "perhaps"}, "body.on"),
            ("dry-run", {"on": True, "off": False}, "body.off"),
        ],
    )
    def test_so_is_a_bad_value_of_an_action(self, shown: Served, path: str, body: object, field: str) -> None:
        answer = shown.client.post(f"api/v1/actions/{path}", json=body, headers=WITH_TOKEN)
        assert answer.status_code == 422, answer.text
        assert [error["field"] for error in answer.json()["errors"]] == [field]


class TestPage:
    def test_it_comes_with_rules_for_the_browser_and_is_not_sent_twice(self, shown: Served) -> None:
        for path in ("", "app.js", "style.css"):
            page = shown.client.get(path)
            assert page.status_code == 200
            assert "default-src 'none'" in page.headers["content-security-policy"]
            assert page.headers["cache-control"] == "no-cache"
            again = shown.client.get(path, headers={"If-None-Match": page.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")

    def test_no_answer_sets_a_cookie_or_lets_other_sites_read(self, shown: Served) -> None:
        for path in ("", "api/v1/run", "metrics", "api/v1/nothing"):
            headers = shown.client.get(path).headers
            assert "set-cookie" not in headers
            assert "access-control-allow-origin" not in headers

    def test_what_is_large_is_compressed(self, shown: Served) -> None:
        answer = shown.client.get("api/v1/run")
        assert answer.headers["content-encoding"] == "gzip"


class TestWhoMayAsk:
    @pytest.mark.parametrize(
        "headers",
        [
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1:1"},
            {"Host": "evil.example"},
            {"Host": "evil.example:8765"},
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
            {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
        ],
    )
    @pytest.mark.parametrize("path", ["api/v1/run", "api/v1/stream", "metrics", ""])
    def test_not_the_pages_of_other_sites(self, shown: Served, path: str, headers: dict[str, str]) -> None:
        assert shown.client.get(path, headers=headers).status_code == 403

    def test_not_even_with_the_token(self, shown: Served) -> None:
        headers = {**WITH_TOKEN, "Origin": "http://evil.example"}
        assert shown.client.post("api/v1/actions/pause", headers=headers).status_code == 403

    def test_its_own_page_and_a_link_to_it(self, shown: Served) -> None:
        own = {"Origin": shown.server.url.rstrip("/"), "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
        assert shown.client.get("api/v1/cost", headers=own).status_code == 200
        link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        assert shown.client.get("", headers=link).status_code == 200

    def test_what_is_too_long_is_not_read(self, shown: Served) -> None:
        url, long = "api/v1/actions/scale", b"x" * (MOST_BODY + 1)
        assert shown.client.post(url, content=long, headers=WITH_TOKEN).status_code == 413
        assert shown.client.post(url, content=iter([b"{}"]), headers=WITH_TOKEN).status_code == 413

    def test_a_server_goes_by_its_address_and_the_names_it_was_given(self) -> None:
        hosts = own_hosts("192.0.2.7", 80, ["Dashboard.example"])
        for host in ("localhost:80", "192.0.2.7:80", "dashboard.example"):
            assert refusal({"host": host}, hosts) is None
        assert refusal({"host": "192.0.2.8:80"}, hosts) is not None
        assert refusal({"host": "dashboard.example", "origin": "https://dashboard.example"}, hosts) is None
        assert refusal({}, hosts) is not None

    def test_names_are_the_same_in_capitals(self) -> None:
        hosts = own_hosts("MyMachine", 8765, ["Dashboard.Example"])
        for host in ("mymachine:8765", "MYMACHINE:8765", "dashboard.example:8765", "Dashboard.Example"):
            assert refusal({"host": host}, hosts) is None
        assert refusal({"host": "[2001:db8::1]:8765"}, own_hosts("2001:DB8::1", 8765)) is None

    def test_on_the_port_of_http_browsers_leave_it_out(self) -> None:
        for host in ("localhost", "127.0.0.1", "[::1]", "mymachine"):
            headers = {"host": host, "origin": f"http://{host}"}
            assert refusal(headers, own_hosts("MyMachine", 80)) is None
            assert refusal(headers, own_hosts("MyMachine", 8765)) is not None, "then it is another server's name"

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"Authorization": "Bearer"},
            {"Authorization": "Bearer opensesame"},
            {"Authorization": f"Basic {TOKEN}"},
            {"Authorization": TOKEN},
            {"Cookie": f"token={TOKEN}"},
        ],
    )
    def test_actions_need_the_token(self, shown: Served, headers: dict[str, str]) -> None:
        for method, path in (("POST", "actions/pause"), ("POST", "actions/roll-back"), ("GET", "rules")):
            answer = shown.client.request(method, f"api/v1/{path}", headers=headers)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert not shown.manager.state.controls.paused

    def test_of_a_recording_nobody_can_ask_anything(self) -> None:
        with Server(Feed("p"), RECORDING, Address(port=0)) as server:
            answer = httpx.post(f"{server.url}api/v1/actions/pause", headers=WITH_TOKEN)
        assert answer.status_code == 409


class TestActions:
    def act(self, run: Served, action: str, body: object = None) -> tuple[int, str]:
        answer = run.client.post(f"api/v1/actions/{action}", json=body, headers=WITH_TOKEN)
        found = answer.json()
        return answer.status_code, found.get("what") or found["detail"]

    def test_pause_and_resume(self, run: Served) -> None:
        assert self.act(run, "pause") == (200, "scaling is paused")
        assert run.client.get("api/v1/manager").json()["paused"]
        assert run.manager.state.controls.paused
        assert self.act(run, "resume") == (200, "scaling goes on")
        assert not run.client.get("api/v1/manager").json()["paused"]

    def test_bounds_and_dry_run(self, run: Served) -> None:
        assert self.act(run, "bounds", {"operator": "words", "most": 4}) == (200, "words: at most 4")
        assert self.act(run, "dry-run", {"on": True})[0] == 200
        found = run.client.get("api/v1/manager").json()
        assert found["bounds"] == {"words": {"least": None, "most": 4}}
        assert found["dry_run"]
        assert self.act(run, "scale", {"parallelism": {"words": 2}}) == (409, "this is a dry run")

    def test_a_scale_by_hand_is_carried_out_at_once_and_can_be_taken_back(self, run: Served) -> None:
        before = SCENARIO.model.initial_plan["words"]
        status, what = self.act(run, "scale", {"parallelism": {"words": before + 2}})
        assert (status, what) == (200, f"asked for by hand: words {before} → {before + 2}")
        eventually("the engine scales", lambda: run.engine.plan()["words"] == before + 2)
        eventually("it is told", lambda: actions_of(run) == [DecisionKind.BY_HAND])
        eventually("and how it ended", lambda: run.feed.history.decisions()[0].outcome == "done")
        assert self.act(run, "roll-back")[0] == 200
        eventually("it is taken back", lambda: run.engine.plan()["words"] == before)
        assert self.act(run, "roll-back")[0] == 409

    def test_after_the_end_of_the_run_they_are_refused(self, run: Served) -> None:
        run.inbox.close()
        assert self.act(run, "pause") == (409, "the run has ended")


def _rules(most: int) -> str:
    return f"""rules:
  - name: more words
    scale_out: words
    by: 1
    never_above: {most}
    when: [{{metric: utilization, above: 80 %, for_at_least: 10 s}}]
    unless_scaled_out_within: 1 min
"""


class TestRules:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "rules.yaml"
        path.write_text(_rules(7))
        path.chmod(0o640)
        return path

    def test_they_are_shown_checked_replaced_and_used(self, file: Path) -> None:
        with served(rules=file) as run:
            found = run.client.get("api/v1/rules", headers=WITH_TOKEN).json()
            assert (found["text"], found["file"], found["editable"]) == (_rules(7), "rules.yaml", True)
            assert "words" in found["verdict"]["sentences"][0]
            checked = run.client.post("api/v1/rules/check", json={"text": _rules(8)}, headers=WITH_TOKEN).json()
            assert checked["errors"] == []
            body = {"text": _rules(8), "version": found["version"]}
            written = run.client.put("api/v1/rules", json=body, headers=WITH_TOKEN)
            assert written.status_code == 200
            assert file.read_text() == _rules(8)
            assert file.stat().st_mode & 0o777 == 0o640
            names = sorted(path.name for path in file.parent.iterdir())
            assert names == [".rules.yaml.versions.jsonl", "rules.yaml"]
            eventually("they are read", lambda: "renewed" in [e.kind for e in run.feed.history.events()])
            stale = run.client.put("api/v1/rules", json=body, headers=WITH_TOKEN)
            assert (stale.status_code, file.read_text()) == (409, _rules(8))

    def test_edits_are_versions_with_who_and_when_and_can_be_taken_back(self, file: Path) -> None:
        with served(rules=file) as run:

            def put(most: int, who: str) -> None:
                body = {"text": _rules(most), "who": who}
                assert run.client.put("api/v1/rules", json=body, headers=WITH_TOKEN).status_code == 200

            def versions() -> list[tuple[str, str]]:
                found = run.client.get("api/v1/rules/versions", headers=WITH_TOKEN).json()
                assert [one["at_s"] for one in found] == sorted(one["at_s"] for one in found)
                return [(one["who"], one["text"]) for one in found]

            def take_back(**body: str) -> int:
                answer = run.client.post("api/v1/rules/take-back", json=body, headers=WITH_TOKEN)
                return int(answer.status_code)

            assert versions() == []
            assert take_back() == 409, "there is nothing to go back to"
            put(8, "Ada")
            put(9, "Bob")
            assert versions() == [("the file", _rules(7)), ("Ada", _rules(8)), ("Bob", _rules(9))]
            assert take_back(who="Ada") == 200
            assert file.read_text() == _rules(8)
            first = run.client.get("api/v1/rules/versions", headers=WITH_TOKEN).json()[0]["version"]
            assert take_back(version=first, who="Eve") == 200
            assert file.read_text() == _rules(7)
            assert [who for who, _ in versions()] == ["the file", "Ada", "Bob", "Ada", "Eve"]
            assert take_back(version="none") == 409
            file.write_text(_rules(6))  # with an editor
            put(5, "Ada")
            assert [who for who, _ in versions()][-2:] == ["the file", "Ada"]
            assert run.client.get("api/v1/rules/versions").status_code == 401

    def test_of_edits_at_the_same_time_one_is_in_force_and_the_others_are_told(self, file: Path) -> None:
        at_once = 8
        rules, together = RulesFile(path=file, dataflow=None), threading.Barrier(at_once)
        edited = rules.read().version

        def edit(most: int) -> str:
            together.wait()
            try:
                rules.write(_rules(most), edited, f"page {most}")
            except ProblemError as refused:
                return str(refused)
            return ""

        with ThreadPoolExecutor(at_once) as pages:
            told = dict(zip(range(at_once), pages.map(edit, range(at_once)), strict=True))
        (won,) = [most for most, why in told.items() if not why]
        assert all("changed meanwhile" in why for most, why in told.items() if most != won)
        assert file.read_text() == _rules(won)
        assert [one.who for one in rules.versions()] == ["the file", f"page {won}"]

    def test_what_was_edited_since_it_was_looked_at_is_not_taken_back(self, file: Path) -> None:
        with served(rules=file) as run:
            seen = run.client.get("api/v1/rules", headers=WITH_TOKEN).json()["version"]
            body = {"text": _rules(8), "version": seen}
            assert run.client.put("api/v1/rules", json=body, headers=WITH_TOKEN).status_code == 200
            back = {"version": seen, "instead_of": seen}
            answer = run.client.post("api/v1/rules/take-back", json=back, headers=WITH_TOKEN)
            assert (answer.status_code, file.read_text()) == (409, _rules(8))

    @pytest.mark.parametrize(
        ("text", "line", "says"),
        [
            ("rules: [", 1, "not valid YAML"),
            ("rules:\n  - name: x\n    scale_up: words\n", 2, "scale_up"),
        ],
    )
    def test_a_bad_edit_is_refused_with_its_lines(self, file: Path, text: str, line: int, says: str) -> None:
        with served(rules=file) as run:
            answer = run.client.put("api/v1/rules", json={"text": text}, headers=WITH_TOKEN)
            assert answer.status_code == 422
            assert says in answer.json()["errors"][0]["message"]
            assert answer.json()["errors"][0]["line"] >= line
            assert file.read_text() == _rules(7)

    def test_rules_for_what_is_not_there_are_refused(self, file: Path) -> None:
        with served(rules=file) as run:
            text = _rules(7).replace("words", "wrods")
            answer = run.client.put("api/v1/rules", json={"text": text}, headers=WITH_TOKEN)
            assert answer.status_code == 422
            assert "did you mean 'words'" in answer.json()["errors"][0]["message"]

    def test_an_edit_of_rules_that_are_gone_is_refused_like_a_look_at_them(self, file: Path) -> None:
        with served(rules=file) as run:
            version = run.client.get("api/v1/rules", headers=WITH_TOKEN).json()["version"]
            file.unlink()
            looked = run.client.get("api/v1/rules", headers=WITH_TOKEN)
            body = {"text": _rules(8), "version": version}
            edited = run.client.put("api/v1/rules", json=body, headers=WITH_TOKEN)
            assert (edited.status_code, edited.json()) == (404, looked.json())
            assert "rules.yaml" in edited.json()["detail"]
            assert not file.exists()

    def test_rules_in_python_are_not_for_the_web(self, tmp_path: Path) -> None:
        file = tmp_path / "rules.py"
        file.write_text("from elastream.policies.rules import rules\nscaling = rules()\n")
        with served(rules=file) as run:
            assert not run.client.get("api/v1/rules", headers=WITH_TOKEN).json()["editable"]
            answer = run.client.put("api/v1/rules", json={"text": "rules: []"}, headers=WITH_TOKEN)
            assert answer.status_code == 409

    def test_a_run_without_rules_has_none(self, shown: Served) -> None:
        assert shown.client.get("api/v1/rules", headers=WITH_TOKEN).status_code == 404


class TestPorts:
    def test_one_that_is_in_use_is_passed_over(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with Server(Feed("p"), RECORDING, Address(port=port)) as server:
                assert server.moved
                assert port < server.port < port + 20

    def test_one_that_cannot_be_had_is_an_error_that_says_so(self) -> None:
        with pytest.raises(ElastreamError, match=r"203\.0\.113\.1.*cannot be listened on"):
            Server(Feed("p"), RECORDING, Address(host="203.0.113.1", port=0))


def test_a_window_of_a_changed_pipeline_brings_its_graph(run: Served) -> None:
    run.feed.snapshot(word_count(1).snapshots[0])
    run.feed.snapshot(snapshot_of(edges=chain("in", "out"), source_rates={"in": 1}))
    eventually("both are shown", lambda: run.feed.history.totals.windows == 2)
    assert [operator["name"] for operator in run.client.get("api/v1/graph").json()["operators"]] == ["in", "out"]
