"""What is measured: readings, windows, true and observed rates, recordings."""

from elastream.monitor.rates import OperatorRates
from elastream.monitor.reading import Reading
from elastream.monitor.snapshot import Snapshot

__all__ = ["OperatorRates", "Reading", "Snapshot"]
