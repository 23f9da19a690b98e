"""What is shown of the log: one line each on standard error, or in what a command shows of its own accord.

Modules log to their own loggers, below `elastream`. Whoever imports elastream routes them as any others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.text import Text

from elastream.commands.shared import err

Show = Callable[[logging.LogRecord], None]

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
_STYLES = {logging.WARNING: "bold yellow", logging.ERROR: "bold red", logging.CRITICAL: "bold red"}


class _Shown(logging.Handler):
    """The one handler of the command."""

    show: Show

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.show(record)
        except Exception:
            self.handleError(record)


_handler = _Shown()


def show_log(verbose: int = 0) -> None:
    """From now on: warnings; where -v was given once also what is being done, where it was twice everything."""
    level = _LEVELS[min(verbose, len(_LEVELS) - 1)]
    _handler.show = _print
    _handler.setLevel(level)
    logging.getLogger("elastream").setLevel(level)
    # an error of the bridge to Java is raised as well, and told in a sentence
    logging.getLogger("py4j").setLevel(logging.NOTSET if verbose else logging.CRITICAL)
    root = logging.getLogger()  # warnings of others are shown, too
    if _handler not in root.handlers:
        root.addHandler(_handler)


def show_only_ours() -> None:
    """Before a program of someone else's runs in this process, to which the root logger belongs."""
    logging.getLogger().removeHandler(_handler)
    logger = logging.getLogger("elastream")
    _handler.setLevel(min(logging.INFO, _handler.level))
    logger.setLevel(_handler.level)
    logger.addHandler(_handler)
    logger.propagate = False


@contextmanager
def log_shown_by(show: Show, level: int = logging.INFO) -> Iterator[None]:
    """Meanwhile someone else shows the log, from this level on if -v does not ask for more."""
    logger, before = logging.getLogger("elastream"), (_handler.show, _handler.level)
    _handler.show = show
    _handler.setLevel(min(level, _handler.level))
    logger.setLevel(_handler.level)
    try:
        yield
    finally:
        _handler.show = before[0]
        _handler.setLevel(before[1])
        logger.setLevel(before[1])


def _print(record: logging.LogRecord) -> None:
    style = _STYLES.get(record.levelno, "dim")
    where = f" {record.name}:" if _handler.level <= logging.DEBUG else ""
    line = Text.assemble((f"{record.levelname.lower()}:", style), f"{where} {record.getMessage()}")
    err.print(line, soft_wrap=True)
