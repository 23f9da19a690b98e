"""Settings of Spark and packages from Maven that a pipeline, or whoever runs it, asks for: values, no Spark.

Of a setting that several give, the first of these counts: `--conf` on the command line; the pipeline's own
(`Pipeline(..., conf=...)`); elastream's defaults; `spark-defaults.conf`. What elastream depends on cannot be set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from elastream.errors import InvalidInput

JARS, PACKAGES, JAVA_OPTIONS = "spark.jars", "spark.jars.packages", "spark.driver.extraJavaOptions"
"""Those to which elastream adds its own, in place of setting them."""
_DEPENDS = "elastream depends on its own value"
_EXECUTORS = "elastream asks for executors itself: --min-executors, --max-executors"
_OWN = {
    "spark.app.name": "it is the name of the pipeline",
    "spark.dynamicAllocation.": _EXECUTORS,
    "spark.executor.cores": "--executor-cores sets it",
    "spark.executor.instances": _EXECUTORS,
    "spark.executor.memory": "--executor-memory sets it",
    "spark.hadoop.mapreduce.fileoutputcommitter.": _DEPENDS,
    "spark.master": "--master sets it",
    "spark.scheduler.mode": _DEPENDS,
    "spark.sql.parquet.outputTimestampType": _DEPENDS,
    "spark.sql.shuffle.partitions": "every operator has its own: declare its state_partitions",
    "spark.sql.sources.useV1SourceList": _DEPENDS,
    "spark.sql.streaming.checkpointFileManagerClass": _DEPENDS,
    "spark.sql.streaming.stateStore.providerClass": _DEPENDS,
    "spark.submit.deployMode": "the driver is this process",
    "spark.ui.enabled": "elastream measures through Spark's REST API",
}
"""What may not be set, and why; with a dot at the end, all that begins so."""
_PACKAGE = re.compile(r"[^\s:,]+:[^\s:,]+:[^\s:,]+")


def conf_of(pairs: Sequence[str]) -> dict[str, str]:
    """Settings as they are written on the command line: KEY=VALUE, each once."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise InvalidInput(f"KEY=VALUE was expected, found {pair!r}")
        if key.strip() in found:
            raise InvalidInput(f"{key.strip()} is given twice")
        found[key.strip()] = value.strip()
    return checked_conf(found)


def checked_conf(given: Mapping[str, Any]) -> dict[str, str]:
    """As texts; refused where Spark would not take it for a setting, or elastream has its own."""
    return {_checked_key(key): _as_text(key, value) for key, value in given.items()}


def _checked_key(key: str) -> str:
    if not re.fullmatch(r"spark\.[^\s=]+", key):
        raise InvalidInput(f"a setting of Spark has a name such as spark.sql.session.timeZone, found {key!r}")
    for own, why in _OWN.items():
        if key == own or (own.endswith(".") and key.startswith(own)):
            raise InvalidInput(f"{key} cannot be set: {why}")
    return key


def _as_text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise InvalidInput(f"{key}: a text, a number, true or false was expected, found {value!r}")


def packages_of(written: Sequence[str]) -> tuple[str, ...]:
    """Of Maven, as GROUP:ARTIFACT:VERSION; several may be in one text, with commas between, as Spark has it."""
    found = tuple(one.strip() for text in written for one in text.split(",") if one.strip())
    for one in found:
        if not _PACKAGE.fullmatch(one):
            raise InvalidInput(
                f"GROUP:ARTIFACT:VERSION was expected, such as org.postgresql:postgresql:42.7.4, found {one!r}"
            )
    return found


def merged_packages(*layers: Iterable[str]) -> tuple[str, ...]:
    """Those of all layers; of an artifact that several name the version of the last counts."""
    found: dict[str, str] = {}
    for package in (one for layer in layers for one in layer):
        found[package.rpartition(":")[0]] = package
    return tuple(found.values())


def joined(*lists: str | None, by: str = ",") -> str:
    return by.join(text for text in lists if text)
