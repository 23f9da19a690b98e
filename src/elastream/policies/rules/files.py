"""Rules from a file, in YAML (or JSON, which is YAML too) or in Python; the name's ending says which."""

from __future__ import annotations

from pathlib import Path

from elastream.errors import InvalidInput
from elastream.formats import read_text
from elastream.policies.rules.python_form import parse_python
from elastream.policies.rules.rule import RuleSet
from elastream.policies.rules.yaml_form import Document, parse_rules


def read_document(path: Path) -> Document:
    """What the file says, with all that is wrong with it; an error only where there is no such text."""
    text = read_text(path)
    return parse_python(text, path) if path.suffix == ".py" else parse_rules(text, str(path))


def read_rules(path: Path) -> RuleSet:
    """The rules of a file; an error names the file and the line."""
    document = read_document(path)
    if document.problems:
        raise InvalidInput(f"{path}: {document.problems[0]}")
    return document.rules


def version_of(path: Path) -> str:
    """Changes when someone writes the file; looking at it is cheap enough for every window."""
    try:
        found = path.stat()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns}"
