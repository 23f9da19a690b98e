"""A pipeline that follows event time, in a process that is there to be killed and started again.

    python event_time_driver.py FOLDER (--seed N | --bids WINDOW_S | --nexmark QUERY) [--kafka SERVERS]

It says `ready` when all queries are started. Lines on its standard input are commands: `rescale counts=1` is
answered with `rescaled`, `size counts=20` with `sized`, `settle` with `settled` when nothing is left to do; `stop`
ends it after the batches under way, as does the end of the input.
"""

from __future__ import annotations

import argparse
import queue
import sys
from pathlib import Path

from driver_process import commands_given, from_words

_MEASURE_EVERY_S = 1.0


def main() -> None:
    # here, as a parent that starts this program imports it to know where it is
    from event_time_bids import bids_pipeline
    from event_time_cases import draw
    from running import Running

    from elastream.engines.spark.channels.kinds import Files, Kafka
    from elastream.engines.spark.session import start_session

    given = _arguments()
    folder: Path = given.folder
    temporary = folder / "temporary"  # a killed JVM leaves its temporary files behind
    temporary.mkdir(exist_ok=True)
    channels = Kafka(servers=given.kafka) if given.kafka else Files()
    spark = start_session(
        "event_time",
        master="local[4]",
        settings={
            "spark.ui.port": "0",
            "spark.local.dir": str(temporary),
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={temporary}",
            "spark.sql.warehouse.dir": str(temporary),
        },
        jars=channels.jars(),
    )
    if given.bids is not None:
        pipeline = bids_pipeline(folder, window_s=given.bids)
    elif given.nexmark is not None:
        from nexmark_check import pipeline_of

        pipeline = pipeline_of(given.nexmark, folder)
    else:
        pipeline = draw(given.seed).pipeline(folder)
    with Running(spark, pipeline, folder, channels=channels) as running:
        print("ready", flush=True)
        _obey(running)
    spark.stop()
    print("stopped", flush=True)


def _obey(running: object) -> None:
    from event_time_hosts import settle_all, size_batches
    from running import Running

    assert isinstance(running, Running)
    commands = commands_given()
    while True:
        try:
            verb, *words = commands.get(timeout=_MEASURE_EVERY_S).split()
        except queue.Empty:
            running.engine.measure()  # deletes what was read, starts again what has failed
            continue
        if verb == "stop":
            return
        if verb == "rescale":
            outcome = running.rescale(**from_words(words))
            if not outcome.succeeded:
                sys.exit(f"the rescale failed: {outcome.detail}")
            print("rescaled", flush=True)
        elif verb == "size":
            size_batches(running, from_words(words))
            print("sized", flush=True)
        elif verb == "settle":
            settle_all(running)
            print("settled", flush=True)


def _arguments() -> argparse.Namespace:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--seed", type=int)
    arguments.add_argument("--bids", type=int)
    arguments.add_argument("--nexmark")
    arguments.add_argument("--kafka")
    return arguments.parse_args()


if __name__ == "__main__":
    main()
