"""A process that writes to a feed: how it ends, whatever it writes."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from elastream.errors import ElastreamError


def run_writer(main: Callable[..., None], what: str) -> None:
    """Run it as a command; what goes wrong is one line on standard error."""
    try:
        typer.run(main)
    except ElastreamError as error:
        sys.exit(f"error: {error}")
    except OSError as error:  # a full disk, say
        sys.exit(f"error: {what} cannot be written: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
