"""An instance of a stateless operator without Spark: it passes on what it reads.

python topic_worker.py SERVERS TOPICS ADDRESS MOMENT; in an early batch it is killed at that moment: when it has
"loaded" or "put" its records or "committed" them, or "never". It leaves when it is told to end (SIGTERM).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

import pyarrow as pa

from elastream.decentralized.spark import topic_publisher
from elastream.decentralized.spark.topic_records import Route, SharedRecords

KILLED_IN = 3


def main(servers: str, topics: str, me: str, moment: str) -> None:
    really_commit = topic_publisher._commit
    leaving = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leaving.set())
    batches = 0

    def reached(this: str) -> None:
        if this == moment and batches >= KILLED_IN:
            os.kill(os.getpid(), signal.SIGKILL)

    def commit(producer: Any) -> None:
        producer.flush(10.0)
        reached("put")  # everything is in the topics, and in no transaction that was committed
        really_commit(producer)
        reached("committed")

    topic_publisher._commit = commit
    route = Route(servers=servers, topics=topics, me=me, reads=True, readers=["c"])
    records = SharedRecords(route, record=lambda event, **told: print(me, event, told, file=sys.stderr))
    records.start()
    batch = 0
    while not leaving.wait(0.02):
        loaded = records.load(batch, 15)
        found = [json.loads(record.value)["id"] for record in loaded if record.sender == "a"]
        if found:
            batches += 1
            reached("loaded")
            came_s = max(record.came_s for record in loaded)
            records.send(batch, pa.table({"id": pa.array(found, pa.int64())}), came_s)
        batch += 1
    records.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
