"""Packages with entry points, for tests of plug-ins."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path


def lay_out(site: Path, name: str, entry_points: Mapping[str, Mapping[str, str]], version: str = "1.0") -> None:
    """The metadata of an installed package: its name and its entry points, by group."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, points in entry_points.items():
        lines += [f"[{group}]", *(f"{point} = {value}" for point, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def install(package: Path, site: Path) -> None:
    """Into a folder of its own, by pip where the tool that builds it is there; nothing is fetched."""
    if importlib.util.find_spec("hatchling") is not None:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
        ]
        subprocess.run([*pip, "--target", str(site), str(package)], check=True, timeout=120)
        return
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))
    for source in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        shutil.copytree(package / source, site / Path(source).name)
    found = project["project"]
    lay_out(site, found["name"], found["entry-points"], found["version"])
