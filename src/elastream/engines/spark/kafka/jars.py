"""The jars of Kafka, named in `jars.lock`: a broker and Spark's connector."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from importlib import resources

from elastream.engines.spark.jars import JarSet, read_lock


class JarUse(StrEnum):
    BROKER = "broker"
    CONNECTOR = "connector"


@cache
def kafka_jars() -> JarSet:
    jars = read_lock(resources.files(__package__).joinpath("jars.lock").read_text(encoding="utf-8"))
    version = next(jar.version for jar in jars if jar.artifact == "kafka_2.13")
    return JarSet(name=f"kafka-{version}", jars=jars, fetched_by="`elastream kafka fetch`")
