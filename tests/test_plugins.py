"""What other packages bring: found by their entry points, and left out with a clear message where it is bad."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import elastream
from elastream import plugins
from elastream.engines import registry
from elastream.engines.registry import ENGINES
from elastream.errors import InvalidInput
from elastream.plugins import Registry
from elastream.policies import catalog
from installing import lay_out

POLICIES = "elastream.policies"

GOOD = """
from dataclasses import dataclass
from elastream import Proposal, option, policy

@policy("still", summary="Leaves all as it is", needs="nothing", good_for="tests")
@dataclass(frozen=True, kw_only=True)
class Still:
    patience: int = option(3, "how often", least=1)
    def __call__(self, snapshot, knowledge=None):
        return Proposal(policy="still", advice={})

@dataclass(frozen=True, kw_only=True)
class Mute:
    pass

@policy("loose", summary="Has no fields", needs="nothing", good_for="tests")
class Loose:
    def __call__(self, snapshot, knowledge=None):
        return Proposal(policy="loose", advice={})

other = 7
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path, whose modules are forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def policies() -> Registry[catalog.PolicyInfo]:
    """As at the start of a process: nothing was looked for yet."""
    return replace(catalog._POLICIES)


def put(site: Path, points: dict[str, str], *, code: str = GOOD, package: str = "others-package") -> None:
    (site / f"{package.replace('-', '_')}_code.py").write_text(code)
    lay_out(site, package, {POLICIES: points})


def test_a_policy_of_another_package_is_found_with_where_it_comes_from(site: Path) -> None:
    put(site, {"still": "others_package_code:Still"})
    found = policies()
    assert found.named("still").origin == "others-package 1.0"
    assert found["still"] == found.named("still")
    assert "still" in list(found)
    assert {"ds2", "still"} <= set(found.names)
    assert found.named("ds2").origin == ""


def test_only_what_is_asked_for_is_loaded(site: Path) -> None:
    put(site, {"still": "others_package_code:Still"})
    found = policies()
    assert found.named("ds2").name == "ds2"
    assert "still" in found.names
    with pytest.raises(InvalidInput, match=r"unknown policy 'stil' \(did you mean 'still'\?\)"):
        found.named("stil")
    assert "others_package_code" not in sys.modules
    found.named("still")
    assert "others_package_code" in sys.modules


WHERE = r"the entry point '{name}' of others-package 1.0 \(elastream.policies: {value}\) cannot be used: "


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("gone", "no_such_module:Policy", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("gone", "others_package_code:Absent", "AttributeError: .*has no attribute 'Absent'"),
        ("mute", "others_package_code:Mute", "Mute lacks __call__"),
        ("number", "others_package_code:other", "a class was expected, found int"),
        ("renamed", "others_package_code:Still", "Still is no policy of the name 'renamed'; its names are still"),
        ("loose", "others_package_code:Loose", "Loose is not a dataclass, whose fields would be its options"),
    ],
)
def test_a_bad_one_is_named_and_the_rest_works(
    site: Path, caplog: pytest.LogCaptureFixture, name: str, value: str, why: str
) -> None:
    put(site, {name: value, "still": "others_package_code:Still"})
    found = policies()
    with pytest.raises(InvalidInput, match=WHERE.format(name=name, value=value) + why):
        found.named(name)
    assert caplog.messages == []
    listed = list(found)
    assert name not in listed
    assert {"still", "ds2"} <= set(listed)
    assert found.get(name) is None
    (warning,) = caplog.messages  # though it was looked for three times
    assert f"entry point {name!r} of others-package 1.0" in warning


@pytest.mark.parametrize("code", ["raise RuntimeError('a bug')", "import sys; sys.exit(3)", "def (:"])
def test_one_that_fails_to_import(site: Path, code: str) -> None:
    put(site, {"broken": "others_package_code:Broken"}, code=code)
    with pytest.raises(InvalidInput, match=r"cannot be used: (RuntimeError: a bug|SystemExit: 3|SyntaxError: )"):
        policies().named("broken")


def test_one_that_hangs_is_left_out(
    site: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(site, {"slow": "others_package_code:Slow"}, code="import threading; threading.Event().wait()")
    put(site, {"still": "second_code:Still"}, package="second")
    found = policies()
    assert found.named("still").name == "still"  # before the limit is short: a busy machine is not one that hangs
    monkeypatch.setattr(plugins, "LOAD_WITHIN_S", 0.2)
    assert "still" in set(found)
    (warning,) = caplog.messages
    assert warning.startswith("the entry point 'slow' of others-package 1.0")
    assert warning.endswith("cannot be used: importing it was not done after 0.2 s")
    with pytest.raises(InvalidInput, match=r"importing it was not done after 0.2 s"):
        found.named("slow")


def test_a_name_that_elastream_has_stays_with_it(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(site, {"ds2": "others_package_code:Still"})
    assert policies().named("ds2").options_class.__module__ == "elastream.policies.ds2"
    found = policies()
    assert found["lag"].origin == ""
    assert "ds2" in list(found)
    where = "the entry point 'ds2' of others-package 1.0 (elastream.policies: others_package_code:Still)"
    assert caplog.messages == [f"{where} is left out: elastream has a policy of that name"]
    assert "others_package_code" not in sys.modules


def test_of_two_packages_with_one_name_the_first_stays(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(site, {"still": "second_code:Still"}, package="second")
    put(site, {"still": "first_code:Still"}, package="first")
    assert policies().named("still").origin == "first 1.0"
    (warning,) = caplog.messages
    assert warning.startswith("the entry point 'still' of second 1.0")
    assert "is left out: the entry point 'still' of first 1.0" in warning


ENGINE = """
from contextlib import nullcontext
from dataclasses import dataclass
from elastream import Dataflow, Operator

@dataclass(frozen=True, kw_only=True)
class Half:
    def start(self): ...

@dataclass(frozen=True, kw_only=True)
class NoJob:
    def read(self, target):
        return self

class Job:
    name = "job"
    def graph(self):
        return Dataflow.of([Operator(name="source", source=True)], [])
    def running(self, folder):
        return nullcontext(self)

@dataclass(frozen=True, kw_only=True)
class NoEngine:
    def read(self, target):
        return Job()
"""


def test_an_engine_that_lacks_a_method(site: Path) -> None:
    (site / "half_engine.py").write_text(ENGINE)
    lay_out(site, "half", {"elastream.engines": {"half": "half_engine:Half"}})
    found: Registry[Any] = replace(ENGINES)
    with pytest.raises(InvalidInput, match=r"'half' of half 1.0 \(.*\) cannot be used: Half lacks read"):
        found.named("half")
    assert list(found) == ["simulated", "spark"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("NoJob", "engine NoJob: the job that it has read: NoJob lacks graph, running"),
        ("NoEngine", "engine NoEngine: Job lacks plan, measure, rescale"),
    ],
)
def test_what_an_engine_gives_is_checked_before_it_runs(
    site: Path, monkeypatch: pytest.MonkeyPatch, name: str, why: str
) -> None:
    (site / "half_engine.py").write_text(ENGINE)
    lay_out(site, "half", {"elastream.engines": {name: f"half_engine:{name}"}})
    monkeypatch.setattr(registry, "ENGINES", replace(ENGINES))
    with pytest.raises(InvalidInput, match=why):
        elastream.run("anything", engine=name, folder=site / "run")


def test_a_kind_of_channels_of_another_package(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from elastream.engines.spark.channels import kinds
    from elastream.engines.spark.channels.files import FileChannel
    from elastream.engines.spark.options import ChannelOptions

    (site / "logged_files.py").write_text(
        "from dataclasses import dataclass\n"
        "from elastream import option\n"
        "from elastream.engines.spark.channels.kinds import Files, described_once\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Logged(Files):\n"
        "    name: str = 'logged'\n"
        "    level: int = option(1, 'how much', least=1)\n"
        "    def channel(self, folder, pipeline):\n"
        "        return self.opened(folder, described_once(folder, {'kind': 'logged'}))\n"
    )
    lay_out(site, "logged", {"elastream.channels": {"logged": "logged_files:Logged", "bad": "logged_files:gone"}})
    monkeypatch.setattr(kinds, "_KINDS", replace(kinds._KINDS))
    kind = kinds.kind_of(ChannelOptions(kind="logged", settings={"level": "2"}))
    assert kind == sys.modules["logged_files"].Logged(level=2)
    with pytest.raises(InvalidInput, match="--channels logged: level must be at least 1, found 0"):
        kinds.kind_of(ChannelOptions(kind="logged", settings={"level": "0"}))
    with pytest.raises(InvalidInput, match=r"the entry point 'bad' of logged 1\.0"):
        kinds.kind_of(ChannelOptions(kind="bad"))
    folder = site / "channels" / "words"
    kind.channel(folder, "pipeline")
    assert isinstance(kinds.open_channel(folder), FileChannel)
    kinds.check_kind(folder.parent, kind)
    with pytest.raises(
        InvalidInput, match="began with channels of the kind 'logged', and cannot go on with 'files'"
    ):
        kinds.check_kind(folder.parent, kinds.Files())
