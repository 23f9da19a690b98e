"""Messages that help: the nearest known word, and the place where something was found."""

from __future__ import annotations

import pytest

from elastream.errors import ElastreamError, InvalidInput, nearest


@pytest.mark.parametrize(
    ("word", "known", "hint"),
    [
        ("flatmp", ["flatmap", "count"], " (did you mean 'flatmap'?)"),
        ("Count", ["flatmap", "count"], " (did you mean 'count'?)"),
        ("xyz", ["flatmap", "count"], " (known: count, flatmap)"),
        ("xyz", [], ""),
        ("", ["count"], " (known: count)"),
        ("xyz", [f"operator-{index}" for index in range(31)], ""),
        ("operator-17", [f"operator-{index}" for index in range(0, 200, 17)], " (did you mean 'operator-17'?)"),
    ],
)
def test_nearest(word: str, known: list[str], hint: str) -> None:
    assert nearest(word, known) == hint


def test_the_hint_does_not_depend_on_the_order_of_the_known_words() -> None:
    assert nearest("ab", ["abd", "abc"]) == nearest("ab", ["abc", "abd"])


def test_an_error_says_where_it_was_found_outermost_first() -> None:
    error = InvalidInput("must be above 0").at("readings[3]").at("snapshot.json")

    assert str(error) == "snapshot.json: readings[3]: must be above 0"
    assert isinstance(error, ElastreamError)
