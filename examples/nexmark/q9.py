"""Q9: the winning bid of every auction. A join within a time, and the highest of each when it has ended."""

from pathlib import Path

from winning_bids import in_time, winning

from elastream import Pipeline
from elastream.workloads.nexmark import SCHEMAS
from elastream.workloads.nexmark_load import feed_load

pipeline = Pipeline("nexmark_q9")
pipeline.feed("auctions", schema=SCHEMAS["auctions"])
pipeline.feed("bids", schema=SCHEMAS["bids"])
generator = feed_load("auctions", "bids", load=10_000)

pipeline.operator(reads=("auctions", "bids"), state_partitions=8)(in_time)
pipeline.operator(reads="in_time", state_partitions=8)(winning)
pipeline.keep("results", reads="winning", folder=Path("out/nexmark/q9").absolute())
