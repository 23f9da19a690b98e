"""A dataflow can be shown as text, as JSON and as a Mermaid diagram."""

from __future__ import annotations

import pytest

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.dataflow.render import as_json, as_mermaid, as_text

WORD_COUNT = Dataflow.of(
    [
        Operator(name="source", source=True),
        Operator(name="flatmap", max_parallelism=64),
        Operator(name="count", state_partitions=32, min_parallelism=2),
        Operator(name="sink", fixed=True),
    ],
    [("source", "flatmap"), ("flatmap", "count"), ("count", "sink")],
)
PLAN = Plan({"flatmap": 10, "count": 20, "sink": 1})


def test_text_has_one_line_an_operator_with_inputs_and_bounds() -> None:
    assert as_text(WORD_COUNT, PLAN).splitlines() == [
        "source  [source]",
        "flatmap ×10  ← source  [1 to 64]",
        "count ×20  ← flatmap  [2 to any, 32 state partitions]",
        "sink ×1  ← count  [fixed]",
    ]


def test_text_without_a_plan_shows_no_parallelism() -> None:
    assert "×" not in as_text(WORD_COUNT)


def test_text_of_a_join_names_every_input() -> None:
    join = Dataflow.of(
        [Operator(name="a", source=True), Operator(name="b", source=True), Operator(name="join")],
        [("a", "join"), ("b", "join")],
    )

    assert as_text(join).splitlines()[-1] == "join  ← a, b"


def test_json_leaves_out_what_is_at_its_default() -> None:
    assert as_json(WORD_COUNT, PLAN) == {
        "operators": [
            {"name": "source", "source": True},
            {"name": "flatmap", "parallelism": 10, "max_parallelism": 64},
            {"name": "count", "parallelism": 20, "min_parallelism": 2, "state_partitions": 32},
            {"name": "sink", "parallelism": 1, "fixed": True},
        ],
        "edges": [["source", "flatmap"], ["flatmap", "count"], ["count", "sink"]],
    }


def test_json_without_a_plan_has_no_parallelism() -> None:
    assert all("parallelism" not in operator for operator in as_json(WORD_COUNT)["operators"])


def test_mermaid_draws_sources_and_fixed_operators_differently() -> None:
    assert as_mermaid(WORD_COUNT, PLAN).splitlines() == [
        "flowchart LR",
        '    n0(["source"])',
        '    n1["flatmap ×10"]',
        '    n2["count ×20"]',
        '    n3[["sink ×1"]]',
        "    n0 --> n1",
        "    n1 --> n2",
        "    n2 --> n3",
    ]


@pytest.mark.parametrize(
    ("name", "shown"),
    [('say "hi"', "say #quot;hi#quot;"), ("two\nlines", "two lines"), ("C#", "C#35;"), ("<b>", "#lt;b#gt;")],
)
def test_mermaid_survives_any_name(name: str, shown: str) -> None:
    diagram = as_mermaid(Dataflow((Operator(name=name, source=True),)))

    assert diagram.splitlines() == ["flowchart LR", f'    n0(["{shown}"])']
