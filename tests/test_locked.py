"""What `make run` and `make test` install is locked, file by file, and is what pyproject.toml asks for."""

from __future__ import annotations

import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCKS = {"dev": ROOT / "requirements" / "dev.txt", "docs": ROOT / "requirements" / "docs.txt"}
RENEW = "`make lock` renews it"
_HASH = re.compile(r"^\s+--hash=sha256:[0-9a-f]{64}( \\)?$")


def asked_for(extra: str) -> Iterator[Requirement]:
    """By the project itself and by an extra, and by the extras that it names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for text in project["dependencies"] if extra == "" else project["optional-dependencies"][extra]:
        requirement = Requirement(text)
        if requirement.name != project["name"]:
            yield requirement
        for further in requirement.extras if requirement.name == project["name"] else ():
            yield from asked_for(further)


def pinned(path: Path) -> dict[str, list[Requirement]]:
    found = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith((" ", "#")):
            requirement = Requirement(line.removesuffix("\\"))
            found[canonicalize_name(requirement.name)].append(requirement)
    return found


@pytest.mark.parametrize("extra", ["dev", "docs"])
def test_all_that_is_asked_for_is_locked_at_a_version_that_will_do(extra: str) -> None:
    locked = pinned(LOCKS[extra])
    for asked in [*asked_for(""), *asked_for(extra)]:
        pins = locked.get(canonicalize_name(asked.name), [])
        assert pins, f"{asked} is not in {LOCKS[extra].name}: {RENEW}"
        for pin in pins:
            (exactly,) = pin.specifier
            assert exactly.operator == "=="
            assert asked.specifier.contains(exactly.version), f"{asked} was asked for, {pin} is locked: {RENEW}"


@pytest.mark.parametrize("path", LOCKS.values(), ids=lambda path: path.name)
def test_every_file_is_checked_by_its_hash(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if not line.startswith(" "):
            assert _HASH.match(lines[number + 1]), f"{path.name}:{number + 1}: no hash follows {line}"
        else:
            assert _HASH.match(line), f"{path.name}:{number + 1}: a hash was expected, found {line!r}"


def test_make_installs_what_is_locked_and_nothing_else() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "--require-hashes" in makefile
    installs = [line for line in makefile.splitlines() if "pip install" in line and "TOOLBOX" not in line]
    for line in installs:
        assert "--require-hashes" in line or "--no-deps" in line or line.startswith("\t$@/bin/python"), line


def test_the_parts_in_the_wheel_are_those_that_are_locked() -> None:
    document = json.loads((ROOT / "requirements" / "sbom.cdx.json").read_text(encoding="utf-8"))
    assert document["bomFormat"] == "CycloneDX"
    parts = {(canonicalize_name(part["name"]), part["version"]) for part in document["components"]}
    locked = {
        (name, one.version) for name, pins in pinned(LOCKS["dev"]).items() for pin in pins for one in pin.specifier
    }
    assert parts <= locked, RENEW
    names = {name for name, _ in parts}
    missing = {canonicalize_name(asked.name) for extra in ("", "all") for asked in asked_for(extra)} - names
    assert not missing, RENEW
