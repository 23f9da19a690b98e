"""elastream keeps a streaming pipeline at the smallest parallelism that keeps up with its input."""

__version__ = "0.2.0"
