"""Gesscale's workload on nodes that are far from each other: taxi rides, and the nearest sight of each.

    elastream run examples/taxi_hotspots.py --policy gesscale --nodes examples/nodes.yaml --fresh --interval '15 s'

A ride takes 25 ms, so an instance does at most 40 a second. The paper replays its rides at ten times their speed
and every ride three times; there are a fiftieth of them here, so they are played 288 times as fast, a day in five
minutes: from 12 records a second at four in the morning to 130 in the evening.
"""

from pathlib import Path

from paper_workloads.taxi_hotspots import taxi_hotspots
from paper_workloads.taxi_replay import RideReplay

pipeline = taxi_hotspots(kept=Path("out/taxi_hotspots/kept").absolute(), record_ms=25, max_parallelism=6)

generator = RideReplay(speed=288, replication=3, begin_h=4, hours=27).command
"""For `elastream run`: the module that writes to the feed, with its arguments."""
