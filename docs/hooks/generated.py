"""The parts of pages that are made from the code: `<!-- generated: NAME -->` in a page stands for one.

The site has them in place; `make test` makes them, too, to check the links into them. Nothing here needs mkdocs,
Spark or Java.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from docs.hooks.commands import commands_text
from docs.hooks.options import knobs_text, policies_text
from docs.hooks.python_names import python_text
from docs.hooks.rest import rest_text

GENERATED: Mapping[str, Callable[[], str]] = {
    "commands": commands_text,
    "policies": policies_text,
    "knobs": knobs_text,
    "python": python_text,
    "rest": rest_text,
}

_PLACE = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)


def filled(text: str) -> str:
    """A page with its generated parts in place; a name that there is not raises KeyError."""
    return _PLACE.sub(lambda place: GENERATED[place[1]](), text)
