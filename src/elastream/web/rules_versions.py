"""The versions of a file of rules that were put in place over HTTP: each with who, when and its text.

They lie beside the file, a line of JSON each. What was there before the first edit is the first of them, so that
every edit can be taken back. An edit of the file itself, by an editor, is none of them.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from elastream.errors import ElastreamError

MOST_VERSIONS = 100
"""The oldest go."""


@dataclass(frozen=True, kw_only=True)
class RulesVersion:
    version: str
    at_s: float
    who: str
    text: str


@dataclass(frozen=True)
class RulesVersions:
    path: Path
    """Of the rules."""

    @property
    def file(self) -> Path:
        return self.path.with_name(f".{self.path.name}.versions.jsonl")

    def read(self) -> list[RulesVersion]:
        """The oldest first; a line that cannot be read is passed over, as one that was cut off."""
        found = []
        lines = self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []
        for line in lines:
            try:
                found.append(RulesVersion(**json.loads(line)))
            except (ValueError, TypeError):
                continue
        return found

    def note(self, *versions: RulesVersion) -> None:
        kept = [*self.read(), *versions][-MOST_VERSIONS:]
        beside = self.file.with_suffix(".new")
        try:
            beside.write_text("".join(f"{json.dumps(asdict(one))}\n" for one in kept), encoding="utf-8")
            beside.replace(self.file)
        except OSError as error:
            raise ElastreamError(f"{self.file.name}: cannot be written: {error.strerror}") from None


def as_of_now(version: str, who: str, text: str) -> RulesVersion:
    return RulesVersion(version=version, at_s=time.time(), who=who, text=text)
