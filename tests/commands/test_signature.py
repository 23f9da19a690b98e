"""Commands whose parameters are made from classes of options: one declaration, and no second list of its names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
import typer
from typer.testing import CliRunner

from elastream.commands.signature import flags_given, from_options
from elastream.errors import InvalidInput
from elastream.options import option


def _pairs(written: list[str]) -> dict[str, int]:
    found = {}
    for pair in written:
        name, _, count = pair.partition("=")
        if not count.isdecimal():
            raise InvalidInput(f"NAME=N was expected, found {pair!r}")
        found[name] = int(count)
    return found


@dataclass(frozen=True, kw_only=True)
class Ovens:
    PANEL: ClassVar = "Ovens"

    count: int = option(2, "how many there are", name="ovens", least=1)
    heat_s: float = option(90.0, "how long they take to heat", unit="s")


@dataclass(frozen=True, kw_only=True)
class Bakery:
    PANEL: ClassVar = "Bakery"

    flour: str = option("rye", "what bread is made of")
    rest_s: float | None = option(None, "how long dough rests", unit="s")
    recipe: Path | None = option(None, "where it is written")
    shape: Mapping[str, int] = option(dict, "NAME=N, repeatable", written=list[str] | None, read=_pairs)
    open: bool = option(True, "whether it sells")
    ovens: Ovens = field(default_factory=Ovens)


@dataclass(frozen=True, kw_only=True)
class Shop:
    PANEL: ClassVar = "Shop"

    till: Annotated[int, typer.Option("--till", "-t", help="Which till.")] = 1


made: list[Any] = []


@from_options
def bake(
    bread: Annotated[str, typer.Argument()],
    bakery: Bakery,
    shop: Shop,
    quiet: Annotated[bool, typer.Option("--quiet")] = False,
) -> None:
    """Bake bread."""
    made.append((bread, bakery, shop, quiet))


def run(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(bake)
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "120"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def baked(*arguments: str) -> tuple[str, Bakery, Shop, bool]:
    made.clear()
    assert run(*arguments).exit_code == 0
    (found,) = made
    return found  # type: ignore[no-any-return]


def test_nothing_given_is_all_defaults() -> None:
    assert baked("loaf") == ("loaf", Bakery(), Shop(), False)


def test_every_field_is_an_option_also_of_a_class_within() -> None:
    given = ["--flour", "oat", "--rest", "5 min", "--shape", "roll=3", "--shape", "bun=4", "--no-open", "-t", "7"]
    found = baked("loaf", *given, "--ovens", "4", "--heat", "3", "--recipe", "old.txt", "--quiet")
    assert found == (
        "loaf",
        Bakery(
            flour="oat",
            rest_s=300.0,
            recipe=Path("old.txt"),
            shape={"roll": 3, "bun": 4},
            open=False,
            ovens=Ovens(count=4, heat_s=3.0),
        ),
        Shop(till=7),
        True,
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--rest", "soon"], "--rest: a duration is a number of seconds or text like \"30 min\" .*, found 'soon'"),
        (["--shape", "roll"], "--shape: NAME=N was expected, found 'roll'"),
        (["--ovens", "0"], "ovens must be at least 1, found 0"),
    ],
)
def test_what_is_wrong_names_the_option(given: list[str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        run("loaf", *given)


def test_help_shows_the_options_of_a_class_together_with_defaults() -> None:
    out = run("--help").stdout
    for words in ("Bake bread.", "─ Bakery ─", "─ Ovens ─", "─ Shop ─", "How long they take to heat."):
        assert words in out
    assert out.index("─ Bakery ─") < out.index("--flour") < out.index("─ Ovens ─") < out.index("--ovens")
    assert "90 s" in out


def test_which_options_were_set() -> None:
    assert flags_given(Bakery()) == ()
    given = Bakery(rest_s=1.0, open=False, ovens=Ovens(count=3))
    assert flags_given(given) == ("--rest", "--open", "--ovens")
