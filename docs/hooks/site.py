"""What mkdocs is told beyond mkdocs.yml: generated parts of pages, and files of the repository that pages link to.

mkdocs is started from the root of the repository (`python -m mkdocs`), so that this package is found.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

from docs.hooks.generated import filled
from docs.hooks.links import ROOT_PAGES, SHOWN_FILES, for_the_site, links_of, page_of, resolved

ROOT = Path(__file__).parents[2]
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json"}


def on_files(files: Files, *, config: Any) -> Files:
    for path, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, content=_read(path)))
    for path in sorted(_linked_files(files)):
        shown = File.generated(config, page_of(path), content=_shown(path))
        shown.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(shown)
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    return filled(for_the_site(markdown, page=page.file.src_uri))


def _linked_files(files: Files) -> set[str]:
    """Of the repository, outside of the documentation, that a page of it links to."""
    origins = [*ROOT_PAGES, *(f"docs/{f.src_uri}" for f in files.documentation_pages() if f.src_dir is not None)]
    found = {resolved(link.target, origin=origin)[0] for origin in origins for link in links_of(_read(origin))}
    return {path for path in found if page_of(path).startswith(f"{SHOWN_FILES}/") and (ROOT / path).is_file()}


def _shown(path: str) -> str:
    text = _read(path)
    if path.endswith(".md"):
        return text
    return f"# {path}\n\n```{_LANGUAGES.get(Path(path).suffix, 'text')}\n{text.rstrip()}\n```\n"


def _read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")
