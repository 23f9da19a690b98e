"""The query of the SEEP thesis over a Google cluster (5.3.3) on Spark, with real events.

    elastream run examples/google_trace.py --rules examples/google_trace_rules.yaml --fresh

Running tasks, requested cores, memory and disk of every machine, and totals, averages, medians and percentiles
over the cluster, every 15 minutes of trace time; the results are Parquet files in `out/google_trace-results`. The
bundled extract lasts 94 minutes, at 20 times its pace less than five. GOOGLE_TRACE may name a file of the trace.
"""

import os
from pathlib import Path

from paper_workloads.google_query import google_query
from paper_workloads.google_trace import EXTRACT

pipeline = google_query(
    Path("out/google_trace-results"),
    trace=Path(os.environ.get("GOOGLE_TRACE", EXTRACT)),
    speed=float(os.environ.get("GOOGLE_TRACE_SPEED", "20")),
)
