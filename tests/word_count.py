"""A snapshot file that several tests read."""

from __future__ import annotations

from typing import Any

WORD_COUNT: dict[str, Any] = {
    "operators": [
        {"name": "source", "source": True},
        {"name": "flatmap", "parallelism": 1, "min_parallelism": 1, "max_parallelism": 64, "fixed": False},
        {"name": "count", "parallelism": 1},
    ],
    "edges": [["source", "flatmap"], ["flatmap", "count"]],
    "source_rates": {"source": 16666.67},
    "readings": [
        {
            "operator": "flatmap",
            "instance": 0,
            "window_s": 60,
            "useful_s": 60,
            "records_in": 100000,
            "records_out": 2000000,
            "backlog": 0,
        },
        {
            "operator": "count",
            "instance": 0,
            "window_s": 60,
            "useful_s": 60,
            "records_in": 1000000,
            "records_out": {},
        },
    ],
}
"""The word count of the DS2 paper (section 5.2) with one instance each, as a snapshot file; it needs 10 and 20."""
