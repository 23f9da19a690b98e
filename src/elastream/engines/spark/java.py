"""The Java that Spark and the broker run on: found, and new enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from elastream.errors import ElastreamError

_LEAST_JAVA = 17


def check_java() -> None:
    """Spark fails without Java, and with an old one, in ways that say little."""
    find_java()


def find_java() -> str:
    """The command that starts it; an error that says what to do where there is none, or an old one."""
    return java_and_version()[0]


def java_and_version() -> tuple[str, str]:
    """The same, with the version that it says it has."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    how = "install one (Debian: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17)"
    if java is None or not os.path.exists(java):
        where = f"at JAVA_HOME ({home})" if home else "on the PATH"
        raise ElastreamError(f"Spark needs Java {_LEAST_JAVA} or newer, and none was found {where}: {how}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError as error:
        raise ElastreamError(f"{java} does not run ({error.strerror}), and Spark needs Java: {how}") from None
    found = re.search(r'version "((?:1\.)?(\d+)[^"]*)', said)
    version = found[1] if found else "unknown"
    if found is None or int(found[2]) < _LEAST_JAVA:
        raise ElastreamError(f"Spark needs Java {_LEAST_JAVA} or newer, found {version} at {java}: {how}")
    return java, version
