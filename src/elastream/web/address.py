"""Where the page is served and to whom, without the server."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

DEFAULT_PORT = 8765
LOOPBACK = "127.0.0.1"
TOKEN_VARIABLE = "ELASTREAM_PAGE_TOKEN"
"""In the environment: the token for actions, where it is to be known beforehand."""


@dataclass(frozen=True, kw_only=True)
class Address:
    host: str = LOOPBACK
    port: int = DEFAULT_PORT
    """0 for any that is free."""
    names: tuple[str, ...] = ()
    """Further names that it goes by, where it is not only for this machine."""
    tls: ssl.SSLContext | None = None
    tokens: Path | None = None
    """The file of those who may look or act; everyone who comes may look where there is none."""
