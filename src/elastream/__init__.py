"""elastream keeps a streaming pipeline at the smallest parallelism that keeps up with its input."""

from elastream._version import __version__ as __version__
