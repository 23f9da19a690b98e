"""Folders of ours, on a file system that this machine has mounted, and how Spark is told of them.

A path without a scheme means to Python what the operating system finds there, and to Spark what lies there in the
file system that is its default: on YARN, and on many other clusters, that is HDFS. Records that are written to one
and looked for in the other are lost. So Spark is given every path with its scheme, and a path with the scheme of
another file system is refused where it comes in.
"""

from __future__ import annotations

import re
from pathlib import Path

from elastream.errors import InvalidInput

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def for_spark(path: Path) -> str:
    """For what Spark hands to Hadoop's `Path`, which takes all that follows the scheme as it is: nothing is
    escaped, whatever the letters are. (What Spark takes for a URI, such as its jars, wants `Path.as_uri`.)"""
    return f"file://{_absolute(path)}"


def local_folder(path: Path) -> Path:
    """The folder as an absolute path; refused where it has a scheme, or letters that Spark cannot be told."""
    scheme = _SCHEME.fullmatch(path.parts[0]) if path.parts else None
    if scheme is not None:
        rest = str(path)[scheme.end() :].lstrip("/")
        slashes = "///" if scheme[1] == "file" else "//"
        raise InvalidInput(
            f"{scheme[0]}{slashes}{rest}: expected a path of this machine, such as /shared/{path.name}, at which "
            f"every node sees the same folder; found one with the scheme {scheme[1]!r}"
        )
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{path!r}: a folder has a name in UTF-8, found one that is not") from None
    return _absolute(path)


def _absolute(path: Path) -> Path:
    # Hadoop takes `link/..` for what `link` lies in, the operating system for what is above that which it leads to
    return path.resolve() if ".." in path.parts else path.absolute()
