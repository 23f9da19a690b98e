"""What is measured: readings, the measurement of an operator, snapshots, recordings."""

from elastream.measurement.measurement import Measurement
from elastream.measurement.reading import Reading
from elastream.measurement.snapshot import Snapshot

__all__ = ["Measurement", "Reading", "Snapshot"]
