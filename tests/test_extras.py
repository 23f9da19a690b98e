"""What is installed by request: the table says what pyproject.toml does, and what is missing is one line."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.testing import CliRunner

from elastream import extras
from elastream.cli import app
from elastream.extras import EXTRAS, MissingExtra, extras_told, missing, require

ROOT = Path(__file__).parents[1]
DECLARED: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]
FOR_DEVELOPERS = {"dev", "docs"}


def names(requirements: Iterable[str]) -> set[str]:
    """Of what they require, with what that requires; extras of elastream itself by what they stand for."""
    found: set[str] = set()
    for requirement in map(Requirement, requirements):
        if requirement.name == "elastream":
            found |= names(text for extra in requirement.extras for text in DECLARED[extra])
        else:
            found.add(canonicalize_name(requirement.name))
    return found


def test_every_extra_that_users_may_ask_for_is_known_and_in_all() -> None:
    assert set(DECLARED) - FOR_DEVELOPERS - {"all"} == set(EXTRAS)
    assert names(DECLARED["all"]) == {name for extra in EXTRAS for name in names(DECLARED[extra])}
    assert names(DECLARED["all"]) < names(DECLARED["dev"])


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_brings_the_modules_that_the_table_says(extra: str) -> None:
    declared = names(DECLARED[extra])
    brought = declared | {name for one in declared for name in _required_by(one)}
    providers = packages_distributions()
    for module in EXTRAS[extra]:
        assert brought & {canonicalize_name(name) for name in providers[module.split(".")[0]]}, module


def _required_by(distribution: str) -> set[str]:
    found = [Requirement(text) for text in requires(distribution) or ()]
    needed = (one for one in found if one.marker is None or one.marker.evaluate({"extra": ""}))
    return {canonicalize_name(one.name) for one in needed}


def test_what_is_there_is_not_missing() -> None:
    for extra in EXTRAS:
        assert missing(extra) is None
        require(extra)


def test_a_module_that_is_missing_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda module: None if module == "uvicorn" else module)
    with pytest.raises(MissingExtra, match=r"^uvicorn is not installed: pip install 'elastream\[web\]'$"):
        require("web")


@pytest.mark.parametrize(
    ("module", "extra"),
    [("pyspark", "spark"), ("pyspark.sql", "spark"), ("google", "spark"), ("matplotlib.figure", "plot")],
)
def test_an_import_that_fails_names_its_extra(module: str, extra: str) -> None:
    with pytest.raises(MissingExtra) as told, extras_told():
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    assert str(told.value).endswith(f" is not installed: pip install 'elastream[{extra}]'")


@pytest.mark.parametrize("module", ["goog", "pysparkling", "my_own_module", None])
def test_an_import_of_something_else_stays_what_it_is(module: str | None) -> None:
    with pytest.raises(ModuleNotFoundError), extras_told():
        raise ModuleNotFoundError("No module", name=module)


def test_a_command_without_its_extra_ends_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "fastapi" or "elastream.web" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)  # Python's own way to say that it cannot be imported
    result = CliRunner().invoke(app, ["serve", str(ROOT / "no.jsonl")])
    assert (result.exit_code, result.output) == (
        2,
        "error: fastapi is not installed: pip install 'elastream[web]'\n",
    )
