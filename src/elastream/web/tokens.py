"""Who may look at a run, and who may act on it: tokens, each with a role and perhaps an end.

A run has a token of its own, for acting; whoever reaches the port may look. With a file of tokens looking needs
one as well. The file is read again when it has changed, so that a token can be given and taken back meanwhile.
"""

from __future__ import annotations

import hmac
import logging
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from elastream.errors import InvalidInput
from elastream.formats import Strict, read_text, read_yaml

_log = logging.getLogger(__name__)

_SECRET = re.compile("[!-~]{16,500}")  # what fits into a header, and is not guessed


class Role(StrEnum):
    LOOK = "look"
    ACT = "act"
    """Who may act may look."""


@dataclass(frozen=True, kw_only=True)
class Token:
    text: str
    role: Role
    expires_s: float | None = None
    """By the clock on the wall: from then on it is worth nothing."""


class Tokens:
    """Used in the loop of the server only."""

    def __init__(
        self, own: str | None = None, *, file: Path | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """A file that cannot be used is an error here; later what stood in it stays, and that is said once."""
        self._own = own
        self._file = file
        self._clock = clock
        self._stamp = None if file is None else _stamp(file)
        self._listed: Sequence[Token] = () if file is None else read_tokens(file)

    @property
    def everyone_looks(self) -> bool:
        return self._file is None

    def role_of(self, given: str) -> Role | None:
        """The most that this token allows now; every one is compared, so that the time tells nothing."""
        self._read_again()
        now_s = self._clock()
        known = [one for one in self._all() if hmac.compare_digest(one.text.encode(), given.encode())]
        roles = {one.role for one in known if one.expires_s is None or now_s < one.expires_s}
        return Role.ACT if Role.ACT in roles else Role.LOOK if roles else None

    def _all(self) -> Iterator[Token]:
        if self._own is not None:
            yield Token(text=self._own, role=Role.ACT)
        yield from self._listed

    def _read_again(self) -> None:
        if self._file is None or (stamp := _stamp(self._file)) == self._stamp:
            return
        self._stamp = stamp
        if stamp is None:
            self._listed = ()
            _log.warning("%s: gone: nobody has a token of it any more", self._file)
            return
        try:
            self._listed = read_tokens(self._file)
        except InvalidInput as error:
            _log.warning("%s; the tokens stay as they were", error)


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


# The file


def _moment(given: Any) -> Any:
    """YAML reads dates as such; without a zone they are meant in UTC, a day from its beginning."""
    match given:
        case datetime():
            return given if given.tzinfo else given.replace(tzinfo=UTC)
        case date():
            return datetime(given.year, given.month, given.day, tzinfo=UTC)
        case None:
            return None
    raise ValueError("a date was expected, 2027-01-31 or 2027-01-31T12:00:00Z")


def _secret(given: Any) -> Any:
    if isinstance(given, str) and _SECRET.fullmatch(given):
        return given
    raise ValueError("16 to 500 letters, digits and signs of ASCII were expected, in quotes where all are digits")


class _Entry(Strict):
    token: Annotated[str, BeforeValidator(_secret)]
    role: Literal["look", "act"]
    expires: Annotated[datetime | None, BeforeValidator(_moment)] = None
    name: str = ""
    """For those who read the file: who has it."""


_ENTRIES = TypeAdapter(list[_Entry])


def read_tokens(file: Path) -> Sequence[Token]:
    text = read_text(file)
    if file.stat().st_mode & stat.S_IROTH:
        _log.warning("%s: everyone on this machine may read the tokens in it: chmod 600 keeps it to you", file)
    try:
        entries = _ENTRIES.validate_python(read_yaml(text, str(file)))
    except ValidationError as error:
        raise InvalidInput(f"{file}: {_told(error)}") from None
    return [
        Token(text=one.token, role=Role(one.role), expires_s=one.expires.timestamp() if one.expires else None)
        for one in entries
    ]


def _told(error: ValidationError) -> str:
    """What is wrong and where, but never what was found: it may be a token."""
    first = error.errors(include_url=False, include_input=False)[0]
    entry, *field = first["loc"] or ("",)
    where = f"entry {entry + 1}: " if isinstance(entry, int) else ""
    if not field:
        return f"{where}a list of entries with token, role and, if you like, expires and name was expected"
    what = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
    return f"{where}{field[0]}: {what}"
