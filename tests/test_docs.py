"""The documentation: its links, its navigation, and what it says of the code. None of this needs mkdocs.

`make docs` builds the site, strictly.
"""

from __future__ import annotations

import ast
import re
import runpy
import shlex
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from pyspark.sql import functions
from typer.testing import CliRunner

from docs.hooks.diagrams import DIAGRAMS, state_diagram, with_diagrams
from docs.hooks.generated import GENERATED, filled
from docs.hooks.links import ROOT_PAGES, Link, anchors_of, for_the_site, links_of, resolved
from elastream import Pipeline
from elastream.cli import app
from elastream.manager.knobs import Knobs
from elastream.options import describe
from elastream.policies.catalog import catalog

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "page_views"
PAGES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
TEXTS = [*ROOT_PAGES, *PAGES]


@cache
def text_of(path: str) -> str:
    """As it is on the site, with its generated parts."""
    return filled((ROOT / path).read_text(encoding="utf-8"))


_BLOCK = re.compile(r'^```(\w*)(?: title="([^"]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def blocks_of(text: str, language: str) -> Iterator[tuple[str, str]]:
    """Fenced code: its title, where it has one, and what is in it."""
    return ((title, code) for found, title, code in _BLOCK.findall(text) if found == language)


# links and navigation


@pytest.mark.parametrize("path", TEXTS)
def test_every_link_leads_somewhere(path: str) -> None:
    found = {f"line {link.line}, {link.target}": broken(path, link) for link in links_of(text_of(path))}
    assert {link: why for link, why in found.items() if why} == {}


def broken(path: str, link: Link) -> str:
    target, anchor = resolved(link.target, origin=path)
    if not (ROOT / target).is_file():
        return f"there is no {target}"
    if anchor and anchor not in anchors_of(text_of(target)):
        return f"{target} has no heading for #{anchor}"
    return ""


def test_broken_links_are_found() -> None:
    text = "[a](b.md) `[no](code.md)` [web](https://x.org) ![i](images/i.png)\n```\n[no](fence.md)\n```\n[c](#d)"
    assert [link.target for link in links_of(text)] == ["b.md", "images/i.png", "#d"]
    assert broken("README.md", Link(line=1, target="docs/nowhere.md")) == "there is no docs/nowhere.md"
    assert broken("README.md", Link(line=1, target="docs/spark.md#event-time")) == ""
    assert "no heading" in broken("README.md", Link(line=1, target="docs/spark.md#no-such-thing"))


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("## On a cluster", "on-a-cluster"),
        ("## 2-FGME, mended", "2-fgme-mended"),
        ("### `run`: the *rest*", "run-the-rest"),
        ("### GET /x { #get-x }", "get-x"),
        ("# [Linked](a.md) word", "linked-word"),
    ],
)
def test_anchors_are_named_as_on_the_site(heading: str, anchor: str) -> None:
    assert anchors_of(heading) == {anchor}


def test_links_lead_to_where_things_are_on_the_site() -> None:
    text = "[a](docs/spark.md#nodes) [b](CONTRIBUTING.md)"
    assert for_the_site(text, page="index.md") == "[a](spark.md#nodes) [b](contributing.md)"
    text = "[a](../../examples/rules.yaml) [b](../spark.md) [c](#d) [e](https://f.org)"
    expected = "[a](../files/examples/rules.yaml.md) [b](../spark.md) [c](#d) [e](https://f.org)"
    assert for_the_site(text, page="policies/rules.md") == expected


def test_every_page_is_in_the_navigation_once() -> None:
    listed = list(pages_in(site()["nav"]))
    assert sorted(listed) == sorted([*(p.removeprefix("docs/") for p in PAGES), *ROOT_PAGES.values()])


def site() -> Any:
    class Loader(yaml.SafeLoader):
        """mkdocs.yml names functions of Python, which are not looked up here."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    return yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)


def pages_in(nav: Any) -> Iterator[str]:
    match nav:
        case str():
            yield nav
        case dict():
            for inner in nav.values():
                yield from pages_in(inner)
        case list():
            for inner in nav:
                yield from pages_in(inner)


# generated parts


def test_every_generated_part_stands_in_a_page() -> None:
    pages = "\n".join((ROOT / path).read_text(encoding="utf-8") for path in PAGES)
    assert sorted(re.findall(r"<!-- generated: (\w+) -->", pages)) == sorted(GENERATED)


def test_the_reference_has_every_option_policy_and_knob() -> None:
    text = text_of("docs/reference/commands.md")
    assert [name for name, options in commands().items() if f"## {name}\n" not in text] == []
    assert [o for options in commands().values() for o in options if f"`{o}`" not in text] == []
    anchors, options = anchors_of(text_of("docs/reference/options.md")), text_of("docs/reference/options.md")
    assert set(catalog()) <= anchors
    assert [o.name for o in describe(Knobs) if f"`{o.name}`" not in options] == []


@cache
def commands() -> dict[str, list[str]]:
    """The options of every command, by its whole name."""
    found = {}

    def add(name: str, command: Any) -> None:
        found[name] = [o for p in command.params for o in (*p.opts, *p.secondary_opts) if o.startswith("-")]
        for word, inner in getattr(command, "commands", {}).items():
            add(f"{name} {word}", inner)

    for word, inner in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        add(f"elastream {word}", inner)
    return {name: options for name, options in found.items() if not any(o.startswith(f"{name} ") for o in found)}


class Light(StrEnum):
    RED = "red"
    DEEP_GREEN = "deep green"


class Turn(StrEnum):
    TIME = "time is up"
    BUTTON = "button"


def test_a_table_of_transitions_is_drawn() -> None:
    table = {
        (Light.RED, Turn.TIME): Light.DEEP_GREEN,
        (Light.DEEP_GREEN, Turn.TIME): Light.RED,
        (Light.RED, Turn.BUTTON): Light.RED,
        (Light.DEEP_GREEN, Turn.BUTTON): Light.RED,
    }
    assert state_diagram(table, Light.RED, apart=[Turn.BUTTON]).split("\n") == [
        "```mermaid",
        "stateDiagram-v2",
        '    state "deep green" as deep_green',
        "    [*] --> red",
        "    red --> deep_green: time is up",
        "    deep_green --> red: time is up",
        "```",
        "",
        "- *button* leads to *red* from *deep green*.",
        "- *red* stays on *button*.",
    ]


@pytest.mark.parametrize("page", sorted({page for page, _ in DIAGRAMS.values()}))
def test_the_diagrams_are_those_of_the_code(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert with_diagrams(page, text) == text, "make docs-diagrams writes them"


# what is said of the code


def test_the_job_of_the_start_page_is_the_one_in_the_examples() -> None:
    shown = {title: code for title, code in blocks_of(text_of("docs/start.md"), "python") if title}
    assert sorted(shown) == ["examples/page_views/plain.py", "examples/page_views/ported.py"]
    for path, code in shown.items():
        assert code == (ROOT / path).read_text(encoding="utf-8"), f"docs/start.md shows another {path}"


def test_the_plain_job_can_be_imported_and_the_ported_one_drawn() -> None:
    assert runpy.run_path(str(EXAMPLE / "plain.py"))["SCHEMA"]
    shown = CliRunner().invoke(app, ["show", str(EXAMPLE / "ported.py"), "--json"])
    assert shown.exit_code == 0, shown.output
    assert [word for word in ("views", "pages", "per_minute", "results") if f'"{word}"' not in shown.output] == []


def pipelines_shown() -> list[tuple[str, str]]:
    """Python in the documentation that declares steps of a pipeline, with the page that it is on."""
    blocks = [(path, code) for path in TEXTS for _, code in blocks_of(text_of(path), "python")]
    return [(path, code) for path, code in blocks if re.search(r"^@pipeline\.", code, re.MULTILINE)]


def test_pipelines_that_are_shown_whole_can_be_drawn_as_they_stand(tmp_path: Path) -> None:
    whole = [(path, code) for path, code in pipelines_shown() if "Pipeline(" in code]
    assert {"README.md", "docs/spark.md", "docs/start.md"} <= {path for path, _ in whole}
    for path, code in whole:
        (tmp_path / "job.py").write_text(code, encoding="utf-8")
        shown = CliRunner().invoke(app, ["show", str(tmp_path / "job.py")])
        assert shown.exit_code == 0, f"{path}: {shown.output}"


def test_parts_of_pipelines_that_are_shown_need_nothing_but_the_usual_imports() -> None:
    parts = [(path, code) for path, code in pipelines_shown() if "Pipeline(" not in code]
    assert parts
    for path, code in parts:
        exec(compile(code, path, "exec"), {"F": functions, "pipeline": Pipeline("shown")})


def test_rules_that_are_shown_are_rules(tmp_path: Path) -> None:
    blocks = [(path, *block) for path in PAGES for block in blocks_of(text_of(path), "yaml")]
    found = [(path, code) for path, title, code in blocks if title == "rules.yaml"]
    assert found
    for path, code in found:
        (tmp_path / "rules.yaml").write_text(code, encoding="utf-8")
        checked = CliRunner().invoke(app, ["rules", "check", str(tmp_path / "rules.yaml"), "--strict"])
        assert checked.exit_code == 0, f"{path}: {checked.output}"


@pytest.mark.parametrize("path", [path for path in TEXTS if path != "CHANGELOG.md"])
def test_commands_that_are_shown_exist(path: str) -> None:
    found = {line: unknown(line) for line in command_lines((ROOT / path).read_text(encoding="utf-8"))}
    assert {line: what for line, what in found.items() if what} == {}


def test_every_command_has_an_example_in_its_help() -> None:
    _, *parts = re.split(r"^## (elastream .*)\n", text_of("docs/reference/commands.md"), flags=re.MULTILINE)
    examples = {name: re.findall(r"Example: `(.*)`", told) for name, told in zip(*[iter(parts)] * 2, strict=True)}
    assert [name for name, lines in examples.items() if not any(line.startswith(name) for line in lines)] == []
    assert [line for lines in examples.values() for line in lines if unknown(line)] == []


def command_lines(text: str) -> Iterator[str]:
    """In fenced code, and alone between backticks."""
    for _, code in blocks_of(text, ""):
        for line in code.replace("\\\n", " ").split("\n"):
            if re.match(r"(\$ )?elastream +[a-z]", line):
                yield line.removeprefix("$ ").split("#")[0].strip()
    spans = re.findall(r"`([^`]+)`", _BLOCK.sub("", text))
    yield from (" ".join(span.split()) for span in spans if re.match(r"elastream\s+[a-z]", span))


def unknown(line: str) -> str:
    words = shlex.split(line.replace("...", "").replace("[", "").replace("]", ""))
    name = max((n for n in commands() if words[: len(n.split())] == n.split()), key=len, default="")
    group = any(n.startswith(" ".join(words[:2])) for n in commands()) and len(words) == 2
    if not name:
        return "" if group else "there is no such command"
    words = words[: words.index("--")] if "--" in words else words  # what comes then is for the pipeline file
    options = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    return " ".join(o for o in options if o not in (*commands()[name], "--help"))


def test_commands_that_there_are_not_are_found() -> None:
    assert unknown("elastream run job.py --dry-run --no-such") == "--no-such"
    assert unknown("elastream run job.py --dry-run -- --no-such") == ""
    assert unknown("elastream walk job.py") == "there is no such command"
    assert unknown("elastream kafka stop") == "there is no such command"
    assert unknown("elastream kafka") == ""


def test_every_alert_is_explained() -> None:
    rules = (ROOT / "deploy/prometheus/elastream-rules.yaml").read_text(encoding="utf-8")
    text = text_of("docs/how-to/page-and-prometheus.md")
    assert [alert for alert in re.findall(r"- alert: (\w+)", rules) if f"`{alert}`" not in text] == []


def test_messages_that_are_explained_are_those_of_the_code() -> None:
    explained = re.findall(r"^\| `(.+?)` \|", text_of("docs/troubleshooting.md"), re.MULTILINE)
    assert len(explained) > 40
    assert [message for message in explained if not is_said(message)] == []


def is_said(message: str) -> bool:
    """Whether one text of the code has all parts of a message, in their order."""
    parts = [part for part in message.split("…") if part]
    return any(has_in_order(text, parts) for text in messages())


def has_in_order(text: str, parts: list[str]) -> bool:
    position = 0
    for part in parts:
        position = text.find(part, position)
        if position < 0:
            return False
        position += len(part)
    return True


@cache
def messages() -> frozenset[str]:
    """Every text in the code of some length, with … for what is filled in."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "src").rglob("*.py"))
    found = (_text(node) for tree in trees for node in ast.walk(tree))
    return frozenset(text for text in found if len(text) > 12)


def _text(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text(value) if isinstance(value, ast.Constant) else "…" for value in values)
    return ""
