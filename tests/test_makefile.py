"""`make test` installs nothing on somebody's machine unless it is asked to, and says what it installs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MISSING = "no-such-promtool"
PACKAGES = "prometheus chromium chromium-driver"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """One with root and apt-get, of which the latter only writes down what it is asked for."""
    (tmp_path / "bin").mkdir()
    for name, does in {"id": "echo 0", "apt-get": f'echo "$@" >> {tmp_path}/asked'}.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def make(machine: Path, *arguments: str, **environment: str) -> str:
    path = f"{machine / 'bin'}{os.pathsep}{os.environ['PATH']}"
    of_make = ("CI", "INSTALL_TOOLS", "MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL")
    variables = {name: value for name, value in os.environ.items() if name not in of_make}
    ended = subprocess.run(
        ["make", "--no-print-directory", *arguments, f"TOOLS={MISSING}"],
        cwd=ROOT,
        env={**variables, "PATH": path, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return ended.stdout + ended.stderr


def asked_of_apt(machine: Path) -> str:
    path = machine / "asked"
    return path.read_text() if path.exists() else ""


def test_nothing_is_installed_unless_it_is_asked_for(machine: Path) -> None:
    said = make(machine, "test-tools")
    assert asked_of_apt(machine) == ""
    assert f"not there: {MISSING}; the tests that need them are skipped" in said
    assert "make install-tools" in said


@pytest.mark.parametrize("asking", [{"INSTALL_TOOLS": "yes"}, {"CI": "true"}])
def test_who_asks_for_it_is_told_what_is_installed_and_why(machine: Path, asking: dict[str, str]) -> None:
    said = make(machine, "test-tools", **asking)
    assert f"install -y -qq --no-install-recommends {PACKAGES}" in asked_of_apt(machine)
    assert f"installing the Debian packages {PACKAGES}, for the tests of the page and of /metrics" in said
    assert "INSTALL_TOOLS=no prevents it" in said


def test_it_can_be_prevented_where_ci_is_set(machine: Path) -> None:
    make(machine, "test-tools", "INSTALL_TOOLS=no", CI="true")
    assert asked_of_apt(machine) == ""


def test_what_is_there_is_not_installed_again(machine: Path) -> None:
    (machine / "bin" / MISSING).write_text("#!/bin/sh\n")
    (machine / "bin" / MISSING).chmod(0o755)
    assert make(machine, "test-tools", INSTALL_TOOLS="yes") == ""
    assert asked_of_apt(machine) == ""


def test_the_gate_asks_for_it() -> None:
    assert "INSTALL_TOOLS=yes" in (ROOT / ".ci" / "run").read_text()
