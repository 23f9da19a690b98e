"""Links and anchors of pages, and where a link of the repository leads on the site."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

ROOT_PAGES: Mapping[str, str] = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""Pages of the site that lie in the root of the repository."""

SHOWN_FILES = "files"
"""The folder of the site with files of the repository that pages link to, such as examples."""

_FENCE = re.compile(r"^ *(```+|~~~+)")
_LINK = re.compile(r"(?<=\]\()([^()\s]+)(?=(?: \"[^\"]*\")?\))")
_CODE = re.compile(r"(`+)(?:(?!\1).)+\1")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$")
_ID = re.compile(r"\{[^{}]*#([\w-]+)[^{}]*\}\s*$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    line: int
    target: str


def links_of(text: str) -> Iterator[Link]:
    """Those that lead to a file or an anchor; not to the web, and none in code."""
    for number, line in _prose(text):
        for found in _LINK.finditer(_CODE.sub(lambda code: "x" * len(code[0]), line)):
            if is_relative(found[1]):
                yield Link(line=number, target=found[1])


def is_relative(target: str) -> bool:
    return re.match(r"[a-z][a-z+.-]*:|//", target) is None


def anchors_of(text: str) -> set[str]:
    """Of all headings, as Python-Markdown names them."""
    found: set[str] = set()
    for _, line in _prose(text):
        if heading := _HEADING.match(line):
            given = _ID.search(heading[1])
            anchor = given[1] if given else _slug(heading[1])
            found.add(_unused(anchor, found))
    return found


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines outside of fenced code, with their numbers."""
    fence = ""
    for number, line in enumerate(text.split("\n"), 1):
        mark = _FENCE.match(line)
        if fence:
            fence = "" if mark and mark[1].startswith(fence) else fence
        elif mark:
            fence = mark[1]
        else:
            yield number, line


def _slug(heading: str) -> str:
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    plain = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode("ascii")
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def _unused(anchor: str, used: set[str]) -> str:
    number = 0
    found = anchor
    while found in used:
        number += 1
        found = f"{anchor}_{number}"
    return found


def resolved(target: str, *, origin: str) -> tuple[str, str]:
    """The file of the repository that a link means, and its anchor; `origin` is the file that it stands in."""
    path, _, anchor = target.partition("#")
    if not path:
        return origin, anchor
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), path)), anchor


def page_of(path: str) -> str:
    """Where a file of the repository is on the site."""
    if path in ROOT_PAGES:
        return ROOT_PAGES[path]
    if PurePosixPath(path).is_relative_to("docs"):
        return str(PurePosixPath(path).relative_to("docs"))
    return f"{SHOWN_FILES}/{path}" + ("" if path.endswith(".md") else ".md")


def origin_of(page: str) -> str:
    """The file of the repository that a page of the site was made of."""
    for path, root_page in ROOT_PAGES.items():
        if page == root_page:
            return path
    inside = PurePosixPath(page)
    return str(inside.relative_to(SHOWN_FILES)) if inside.is_relative_to(SHOWN_FILES) else f"docs/{page}"


def for_the_site(text: str, *, page: str) -> str:
    """The text of a page with its links as they have to be on the site."""
    origin = origin_of(page)
    lines = text.split("\n")
    for number, line in _prose(text):
        lines[number - 1] = _LINK.sub(lambda found: _on_the_site(found[1], origin, page), line)
    return "\n".join(lines)


def _on_the_site(target: str, origin: str, page: str) -> str:
    if not is_relative(target) or target.startswith("#"):
        return target
    path, anchor = resolved(target, origin=origin)
    there = posixpath.relpath(page_of(path), posixpath.dirname(page) or ".")
    return f"{there}#{anchor}" if anchor else there
