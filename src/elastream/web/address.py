"""Where the page is served, without the server."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_PORT = 8765
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Address:
    host: str = LOOPBACK
    port: int = DEFAULT_PORT
    """0 for any that is free."""
    names: tuple[str, ...] = ()
    """Further names that it goes by, where it is not only for this machine."""
