"""Options: one declaration gives the check, the defaults and the reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from elastream.errors import InvalidInput
from elastream.options import OptionInfo, build, check_bounds, describe, option


@dataclass(frozen=True, kw_only=True)
class Knobs:
    interval_s: float = option(60.0, "how often", unit="s", least=0.001)
    share: float = option(1.0, "of the capacity", unit="share", least=0.01, most=1.0)
    ceiling: float = option(0.0, "below zero", most=0.0)
    steps: int = option(1, "how many", least=1)
    catch_up_s: float | None = option(None, "how fast", unit="s", least=0.001)
    dry_run: bool = option(False, "everything but the act")

    def __post_init__(self) -> None:
        check_bounds(self)


def refused(**given: Any) -> str:
    with pytest.raises(InvalidInput) as error:
        build(Knobs, given, place="policy test")
    message = str(error.value)
    assert message.startswith("policy test: ")
    return message.removeprefix("policy test: ")


def test_nothing_given_is_all_defaults() -> None:
    assert build(Knobs, {}, place="here") == Knobs()


def test_numbers_may_come_as_text() -> None:
    built = build(Knobs, {"interval_s": "30", "steps": "3", "dry_run": "true"}, place="here")

    assert built == Knobs(interval_s=30.0, steps=3, dry_run=True)


@pytest.mark.parametrize("nothing", [None, "none"])
def test_an_option_that_may_be_absent_can_be_switched_off(nothing: str | None) -> None:
    assert build(Knobs, {"catch_up_s": nothing}, place="here").catch_up_s is None


def test_seconds_may_be_written_with_their_unit_and_without_the_suffix() -> None:
    assert build(Knobs, {"interval": "5 min"}, place="here") == Knobs(interval_s=300.0)
    assert build(Knobs, {"catch_up": "2 h"}, place="here") == Knobs(catch_up_s=7_200.0)


def test_one_option_in_both_spellings_is_refused() -> None:
    assert refused(interval="5 min", interval_s=3) == "interval_s is given twice"


def test_bounds_are_themselves_allowed() -> None:
    assert build(Knobs, {"share": 0.01}, place="here").share == 0.01
    assert build(Knobs, {"share": 1.0}, place="here").share == 1.0


def test_an_unknown_option_is_answered_with_the_nearest_one() -> None:
    assert refused(intervall_s=3) == "unknown option 'intervall_s' (did you mean 'interval_s'?)"


def test_an_option_whose_name_is_not_even_text_is_refused() -> None:
    with pytest.raises(InvalidInput, match="here: unknown option 3 "):
        build(Knobs, {3: 4}, place="here")  # type: ignore[dict-item]  # as YAML may give it


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"interval_s": 0}, "interval_s must be at least 0.001, found 0"),
        ({"share": 1.5}, "share must be from 0.01 to 1, found 1.5"),
        ({"share": 0.0}, "share must be from 0.01 to 1, found 0"),
        ({"ceiling": 1.0}, "ceiling must be at most 0, found 1"),
        ({"steps": -2}, "steps must be at least 1, found -2"),
        ({"catch_up_s": 0.0}, "catch_up_s must be at least 0.001, found 0"),
        ({"share": float("nan")}, "share must be a number, found NaN"),
        ({"share": "nan"}, "share must be a number, found NaN"),
        ({"share": "inf"}, "share must be from 0.01 to 1, found inf"),
        ({"interval_s": float("inf")}, "interval_s must be a finite number, found inf"),
        ({"catch_up_s": float("inf")}, "catch_up_s must be a finite number, found inf"),
    ],
)
def test_values_out_of_bounds_are_refused_with_their_bounds(given: dict[str, Any], message: str) -> None:
    assert refused(**given) == message


@pytest.mark.parametrize(
    "given",
    [
        {"steps": "three"},
        {"steps": 1.5},
        {"interval_s": "none"},
        {"interval_s": "nan"},
        {"interval_s": "5 parsecs"},
        {"interval_s": None},
        {"interval_s": [1]},
        {"interval_s": True},
        {"steps": True},
        {"dry_run": "perhaps"},
    ],
)
def test_values_of_another_type_are_refused_by_name_and_shown(given: dict[str, Any]) -> None:
    ((name, value),) = given.items()

    message = refused(**given)

    assert message.startswith(f"{name}: ")
    assert message.endswith(f"found {value!r}")


def test_the_reference_lists_every_option_in_the_order_of_declaration() -> None:
    described = describe(Knobs)

    assert [info.name for info in described] == [
        "interval_s",
        "share",
        "ceiling",
        "steps",
        "catch_up_s",
        "dry_run",
    ]
    assert described[0] == OptionInfo(name="interval_s", default=60.0, unit="s", meaning="how often")
