"""`elastream master` and `agent` in this process: what they refuse, and a short run with nobody there."""

from __future__ import annotations

import json
import re
import socket
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import trustme
from typer.testing import CliRunner, Result

from elastream.agents.adaptor import EngineAdaptor
from elastream.agents.security import read_token
from elastream.cli import app
from elastream.commands.named_engine import SimulatedInRealTime, named_engine
from elastream.errors import InvalidInput
from elastream.web.address import TOKEN_VARIABLE

ROOT = Path(__file__).parents[2]
RULES = """\
rules:
  - name: long queue
    scale_out: words
    by: 1
    never_above: 8
    when: [{metric: queue_length, above: 100, for_at_least: 1 s}]
    unless_scaled_out_within: 1 h
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ELASTREAM_TOKEN", raising=False)
    (tmp_path / "rules.yaml").write_text(RULES)
    return tmp_path


def master(*arguments: str) -> Result:
    short = ("--rules", "rules.yaml", "--port", "0", "--interval", "100 ms", "--duration", "500 ms")
    return CliRunner().invoke(app, ["master", *short, *arguments])


def agent(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["agent", *arguments])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rules", "none.yaml"], "none.yaml: there is no such file"),
        (["--view", "queue_lenght"], "unknown metric 'queue_lenght' (did you mean 'queue_length'?)"),
        (["--set", "intervall=3"], "--set intervall: no option of rules and no knob"),
        (["--host", "0.0.0.0"], "--host 0.0.0.0 is open to the network: give a token, with --token-file or in"),
        (["--token-file", "none"], "none: there is no such file"),
        (["--tls-key", "key.pem"], "--tls-key needs the certificate that it belongs to"),
        (["--tls-certificate", "rules.yaml"], "rules.yaml: not a certificate with its key"),
        (
            ["--engine", "words"],
            "--engine takes MODULE:OBJECT, http://HOST:PORT of a run or the .yaml of a scenario, found 'words'",
        ),
        (["--engine", "nowhere:thing"], "--engine nowhere:thing: cannot be imported: No module named 'nowhere'"),
        (["--engine", "json:thing"], "--engine json:thing: json has no thing"),
        (["--engine", "json:dumps"], "--engine json:dumps: cannot be made: TypeError"),
        (["--engine", "none.yaml"], "none.yaml: there is no such file"),
        (["--folder", "rules.yaml"], "rules.yaml: cannot be written"),
    ],
)
def test_a_master_says_what_it_cannot_do(arguments: list[str], message: str) -> None:
    result = master(*arguments)
    assert result.exit_code == 2, result.output
    assert message in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--operator", " "], "--operator takes OPERATOR or OPERATOR:INSTANCE, found ' '"),
        (["--operator", "map", "--master", "here"], "--master takes HOST:PORT, found 'here'"),
        (["--operator", "map", "--master", "here:99999"], "--master takes HOST:PORT, found 'here:99999'"),
        (["--operator", "map", "--pid", "999999999"], "there is no process 999999999 to be read"),
        (["--operator", "map", "--disk", "nowhere"], "nowhere: there is no such folder"),
        (
            ["--operator", "map", "--series", "latency=a"],
            "--prometheus or --otlp-port, and --series (what",
        ),
        (["--operator", "map", "--otlp-port", "0"], "--prometheus or --otlp-port, and --series (what"),
        (
            ["--operator", "map", "--otlp-port", "0", "--prometheus", "http://a", "--series", "latency=a"],
            "--prometheus and --otlp-port: an agent reads one of them",
        ),
        (["--operator", "map", "--tls-authority", "rules.yaml"], "rules.yaml: not a certificate to trust"),
    ],
)
def test_an_agent_says_what_it_cannot_do(arguments: list[str], message: str) -> None:
    result = agent(*arguments)
    assert result.exit_code == 2, result.output
    assert message in result.output


def test_rules_for_an_operator_that_the_engine_does_not_have_are_refused(here: Path) -> None:
    (here / "rules.yaml").write_text(RULES.replace("words", "wrds"))
    result = master("--engine", str(ROOT / "examples" / "wordcount.yaml"))
    assert result.exit_code == 2
    assert "unknown operator 'wrds' (did you mean 'words'?)" in result.output


def test_a_master_without_agents_waits_and_ends() -> None:
    result = master()
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith("listens on 127.0.0.1:")
    assert lines[0].endswith(", says what it would do")
    assert lines[-1].startswith("ended: readings 0, ")


def test_it_serves_its_page_where_it_is_asked_to() -> None:
    result = master("--page-port", "0", "--engine", str(ROOT / "examples" / "wordcount.yaml"))
    assert result.exit_code == 0, result.output
    (token,) = re.findall(r"page: http://127.0.0.1:\d+/#token=(\S+)", result.output)
    assert result.output.count(token) == 1, "whoever reads a log is to find it once at most"


def test_a_token_that_is_known_beforehand_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "of-the-environment")
    result = master("--page-port", "0", "--engine", str(ROOT / "examples" / "wordcount.yaml"))
    assert re.search(r"page: http://127.0.0.1:\d+/\n", result.output)
    assert "of-the-environment" not in result.output


def test_the_page_of_a_master_speaks_tls_and_knows_who_may_look(here: Path) -> None:
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(here / "server.pem"))
    (here / "tokens.yaml").write_text("- {token: of-someone-who-acts, role: act}")
    given = ["--page-port", "0", "--page-tokens", "tokens.yaml", "--tls-cert", "server.pem"]
    result = master(*given, "--engine", str(ROOT / "examples" / "wordcount.yaml"))
    assert result.exit_code == 0, result.output
    assert re.search(r"page: https://127.0.0.1:\d+/\n", result.output)
    assert "who may look, and who act: tokens.yaml" in result.output
    assert "of-someone-who-acts" not in result.output


def test_a_run_that_does_not_answer_is_said() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        result = master("--engine", f"http://127.0.0.1:{nobody.getsockname()[1]}")
    assert result.exit_code == 2
    assert "/api/v1/graph: does not answer" in result.output.replace("\n", "")


def test_its_events_as_json(here: Path) -> None:
    result = master("--json", "--engine", str(ROOT / "examples" / "wordcount.yaml"))
    assert result.exit_code == 0, result.output
    first, *_, last = map(json.loads, result.stdout.splitlines())
    assert (first["event"], first["host"], last["event"]) == ("listening", "127.0.0.1", "ended")
    written = here / "out" / "master" / "engine-metrics" / "words.0.json"
    assert json.loads(written.read_text())["queue_length"] >= 0


def test_a_second_master_in_one_folder_is_refused(here: Path) -> None:
    import fcntl

    (here / "used").mkdir()
    with (here / "used" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = master("--folder", "used")
    assert result.exit_code == 2
    assert "used: another master uses this folder" in result.output


def test_proposals_do_not_pile_up_on_disk(here: Path) -> None:
    """One with each round, every second, would be gigabytes after some weeks."""
    assert master("--engine", str(ROOT / "examples" / "wordcount.yaml")).exit_code == 0
    with sqlite3.connect(here / "out" / "master" / "master.db") as store:
        tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert sorted(tables) == ["lease", "state"]
        assert store.execute("SELECT COUNT(*) FROM state").fetchone() == (1,)


# Engines by name

MODULE = """\
class Adaptor:
    def operators(self): return ["map"]
    def current_size(self, operator): return 1
    def original_size(self, operator): return 1
    def set_size(self, operator, size): pass

class Engine:
    def graph(self): ...
    def plan(self): return {"map": 3}
    def measure(self): ...
    def rescale(self, decision): ...

class Half:
    def operators(self): return []
    def set_size(self, operator, size): pass

made = Adaptor()

def make():
    return made
"""


@pytest.mark.parametrize("name", ["Adaptor", "made", "make"])
def test_an_adaptor_is_an_object_or_what_gives_one(here: Path, name: str) -> None:
    (here / "some_engine.py").write_text(MODULE)
    assert list(named_engine(f"some_engine:{name}", here).operators()) == ["map"]


def test_an_engine_of_the_managers_port_is_taken_too(here: Path) -> None:
    (here / "some_engine.py").write_text(MODULE)
    found = named_engine("some_engine:Engine", here)
    assert isinstance(found, EngineAdaptor)
    assert found.original_size("map") == 3


def test_what_lacks_a_call_is_told_which(here: Path) -> None:
    (here / "some_engine.py").write_text(MODULE)
    with pytest.raises(InvalidInput, match="Half lacks current_size, original_size"):
        named_engine("some_engine:Half", here)


def test_a_scenario_is_simulated_in_real_time(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr("elastream.commands.named_engine.time.monotonic", lambda: now_s[0])
    found = named_engine(str(ROOT / "examples" / "wordcount.yaml"), here)
    assert isinstance(found, SimulatedInRealTime)
    now_s[0] += 10.0
    found.operators()
    metrics: dict[str, Any] = json.loads((here / "engine-metrics" / "words.0.json").read_text())
    assert metrics["queue_length"] == pytest.approx(10 * (1000 - 210), rel=0.1)
    found.set_size("words", 3)
    now_s[0] += 10.0
    found.operators()
    assert {path.name for path in (here / "engine-metrics").glob("words.*")} == {
        f"words.{instance}.json" for instance in range(3)
    }


# Tokens


def test_a_token_comes_from_a_file_or_from_the_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_token(None) == ""
    monkeypatch.setenv("ELASTREAM_TOKEN", "of the environment")
    assert read_token(None) == "of the environment"
    (here / "token").write_text("of the file\n")
    assert read_token(here / "token") == "of the file"
    (here / "token").write_text("\n")
    with pytest.raises(InvalidInput, match="a token was expected, found nothing"):
        read_token(here / "token")
    (here / "token").write_text("x" * 501)
    with pytest.raises(InvalidInput, match="a token has at most 500 bytes, found 501"):
        read_token(here / "token")
