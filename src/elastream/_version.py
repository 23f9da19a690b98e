"""The version, in a module of its own: what `elastream` exports stands above all layers, and each may say it."""

__version__ = "0.2.0"
