"""The page on the architecture names files: they are there, and the layers are those that are checked."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def places(title: str) -> list[str]:
    """What the last column of the section's table names, without its head."""
    rows = [line for line in section(title).splitlines() if line.startswith("| ")][2:]
    return [place for row in rows for place in re.findall(r"`([^`]+)`", row.split(" | ")[-1])]


@pytest.mark.parametrize("place", [*places("Where is ...?"), *places("The walk of a reading")])
def test_what_the_page_names_is_there(place: str) -> None:
    assert (ROOT / "src" / "elastream" / place).exists() or (ROOT / place).exists()


def thousand_lines(part: str) -> float:
    files = (ROOT / "src" / "elastream" / part).rglob("*.py")
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) / 1000


def test_the_lines_are_where_the_page_says() -> None:
    rows = re.findall(r"^\| (`.*?) \| ([\d.]+) \|", section("Where the lines are"), flags=re.MULTILINE)
    said = {part: float(lines) for parts, lines in rows for part in re.findall(r"`([^`]+)`", parts)}
    assert len(said) > 10
    assert {part: thousand_lines(part) for part in said} == pytest.approx(said, rel=0.1, abs=0.1)
    parts = [folder.name for folder in (ROOT / "src" / "elastream").iterdir() if folder.is_dir()]
    left_out = [part for part in parts if not any(name.split("/")[0] == part for name in said)]
    assert all(thousand_lines(part) < 0.5 for part in left_out)


def test_there_are_twelve_questions_and_every_step_has_a_file() -> None:
    rows = [line for line in section("Where is ...?").splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + 12
    steps = [line for line in section("The walk of a reading").splitlines() if re.match(r"\| \d+\. ", line)]
    assert [int(step.split(".")[0][2:]) for step in steps] == list(range(1, len(steps) + 1))
    assert all("`" in step.split(" | ")[-1] for step in steps)


def test_the_layers_of_the_page_are_those_that_are_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    checked = next(contract["layers"] for contract in contracts if contract["containers"] == ["elastream"])
    (shown,) = re.findall(r"```\n(cli · .*?)```", section("Layout"), flags=re.DOTALL)
    names = [re.split(r"  +", line)[0].split(" · ") for line in shown.splitlines()]
    assert names == [[name for name in layer.split(" | ") if name != "testing"] for layer in checked]
