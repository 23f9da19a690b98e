"""Small pieces of Markdown that the generated parts of pages are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns that are empty in every row are left out."""
    listed = [tuple(map(cell, row)) for row in rows]
    kept = [column for column in range(len(header)) if any(row[column] for row in listed)]
    lines = [[header[column] for column in kept], ["---"] * len(kept)]
    lines += [[row[column] for column in kept] for row in listed]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    text = text.strip()
    return text if not text else text[0].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
