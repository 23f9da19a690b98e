"""Connectors that a session has without being asked, so that a source or a sink of Kafka works over any channels.

The jars are few and small: whoever has fetched them (`elastream kafka fetch`, or a broker that was started once)
has them in every session. Which data sources a pipeline uses is not known before its functions are called, and
those need the session. Jars that the user names stay, and a connector that is among them is taken as it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark

from elastream.engines.spark.kafka.jars import JarUse, kafka_jars

_CONNECTOR = "spark-sql-kafka"
_NAMES = ("spark.jars", "spark.jars.packages")


def jars_of_session(
    of_channels: Sequence[Path], settings: Mapping[str, str], defaults: Mapping[str, str]
) -> list[str]:
    """What is to be in `spark.jars`: addresses, those of the user first."""
    named = {**defaults, **settings}
    users = [jar.strip() for jar in named.get("spark.jars", "").split(",") if jar.strip()]
    if _CONNECTOR in " ".join(named.get(name, "") for name in _NAMES):
        return [*users, *(_address(jar) for jar in of_channels if not _is_in(jar, users))]
    found = dict.fromkeys([*of_channels, *_at_hand()])
    return [*users, *map(_address, found)]


def spark_defaults() -> dict[str, str]:
    """Jars that `spark-defaults.conf` names, which settings of a session would put aside."""
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    file = Path(os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf") / "spark-defaults.conf"
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:
        return {}
    found = re.findall(r"^[ \t]*(spark\.jars(?:\.packages)?)[ \t]*[=: \t][ \t]*(\S.*?)[ \t]*$", text, re.MULTILINE)
    return dict(found)


def _at_hand() -> list[Path]:
    jars = kafka_jars()
    missing = any(jar.use == JarUse.CONNECTOR for jar in jars.missing())
    return [] if missing else jars.paths(JarUse.CONNECTOR)


def _address(jar: Path) -> str:
    return jar.absolute().as_uri()


def _is_in(jar: Path, users: Sequence[str]) -> bool:
    return any(user.rsplit("/", 1)[-1] == jar.name for user in users)
