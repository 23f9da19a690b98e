"""Writes what `pip install 'elastream[all]'` installs as a CycloneDX document: python sbom.py LOCKED OUT.

Reads a file of `name==version ; marker` lines, as `uv pip compile` writes them without hashes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement

NAME = "elastream"


def document(lines: list[str]) -> str:
    whole = Component(name=NAME, type=ComponentType.APPLICATION, bom_ref=NAME)
    bom = Bom()
    bom.metadata.component = whole
    parts = [_part(Requirement(line)) for line in lines if line.strip()]
    bom.components.update(parts)
    bom.register_dependency(whole, parts)
    # neither a time nor a number of its own, so that the same parts are the same document
    bom.serial_number, bom.metadata.timestamp = None, None
    return JsonV1Dot6(bom).output_as_string(indent=1)


def _part(pinned: Requirement) -> Component:
    (version,) = (one.version for one in pinned.specifier)
    url = PackageURL(type="pypi", name=pinned.name, version=version)
    return Component(name=pinned.name, version=version, purl=url, type=ComponentType.LIBRARY, bom_ref=str(url))


if __name__ == "__main__":
    locked, out = map(Path, sys.argv[1:])
    out.write_text(document(locked.read_text(encoding="utf-8").splitlines()) + "\n", encoding="utf-8")
