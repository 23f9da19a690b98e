"""`elastream new`: a small pipeline that runs at once, to be changed into one's own."""

from __future__ import annotations

import re
import shlex
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from elastream.commands.as_json import print_json
from elastream.commands.shared import JsonOption, out, writing_to
from elastream.errors import InvalidInput
from elastream.whole_files import write_whole

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_PIPELINE = "pipeline.py"


def new(
    name: Annotated[
        str, typer.Argument(help="Of the pipeline and, unless --folder says otherwise, of its folder.")
    ],
    folder: Annotated[
        Path | None, typer.Option(help="Where to write it; by default a folder of its name.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a small pipeline with a load of its own, which runs at once and whose comments explain it.

    Two files: the pipeline, and what makes the records of its load. Nothing that is there is overwritten.

    Example: `elastream new visits`
    """
    where = Path(name) if folder is None else folder
    files = files_of(name, where)
    for path in files:
        if path.exists():
            raise InvalidInput(f"{path} is there already: choose another name, or another --folder")
    with writing_to(where):
        for path, text in files.items():
            write_whole(path, text.encode())
    _tell(name, list(files), as_json=as_json)


def files_of(name: str, folder: Path) -> dict[Path, str]:
    """What is written, by path."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"NAME is made of letters, digits, - and _, and begins with a letter; found {name!r}")
    records = f"{name.replace('-', '_').lower()}_records"  # a module that no other package has
    pipeline = folder / _PIPELINE
    given = {"name": name, "file": shlex.quote(str(pipeline)), "records": records}
    return {
        pipeline: _template("pipeline.py.txt").format(**given),
        folder / f"{records}.py": _template("records.py.txt").format(**given),
    }


def _template(file: str) -> str:
    return resources.files("elastream.commands").joinpath("templates", file).read_text(encoding="utf-8")


def _tell(name: str, files: list[Path], *, as_json: bool) -> None:
    pipeline = shlex.quote(str(files[0]))
    run = f"elastream run {pipeline} --interval '10 s'"
    if as_json:
        print_json({"pipeline": name, "files": [str(file) for file in files], "run": run})
        return
    out.print(f"written:    {', '.join(map(str, files))}", soft_wrap=True)
    out.print(f"draw it:    elastream show {pipeline}", soft_wrap=True)
    out.print(f"run it:     {run}", soft_wrap=True)
    out.print("look first: elastream doctor", soft_wrap=True)
