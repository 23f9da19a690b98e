"""The taxi rides of Belkhiria's thesis (4.3.2) on instances that scale themselves, without a manager:

    elastream decentralized run examples/taxi_zones.py
    elastream capacity examples/taxi_zones.py inZone

Rides come in, invalid ones are dropped, `inZone` keeps those that begin or end in Midtown, a sink counts them. The
pipeline itself is in paper_workloads/taxi_zones.py, beside this file.
"""

from pathlib import Path

from paper_workloads.taxi_zones import CAPACITY_PER_S, taxi_zones

pipeline = taxi_zones(kept=Path("out/taxi_zones_counted"))

load = {"steps": [[0, 200], [150, 500], [330, 120]]}
"""Rides per second, as in Figure 4.8 of the thesis, with shorter stretches."""
records = "paper_workloads.taxi_zone_rides:table"
"""What the load generator writes: a function that makes records, in a module beside this file."""
capacities = {"inZone": CAPACITY_PER_S}
"""Records per second that an instance can process. Operators without one stay at one instance."""
