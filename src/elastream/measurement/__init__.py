"""What is measured: readings, windows, true and observed rates, recordings."""

from elastream.measurement.rates import OperatorRates
from elastream.measurement.reading import Reading
from elastream.measurement.snapshot import Snapshot

__all__ = ["OperatorRates", "Reading", "Snapshot"]
