"""The rules of a run as a file that can be shown, checked and replaced.

Only rules in YAML can be edited from outside: those in Python are a program, which the manager would run.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path

from pydantic import Field

from elastream.dataflow import Dataflow
from elastream.errors import ElastreamError, InvalidInput
from elastream.formats import read_text
from elastream.policies.rules.check import check_usable, doubts
from elastream.policies.rules.sentences import sentence
from elastream.policies.rules.yaml_form import parse_rules
from elastream.showing.views import View
from elastream.web.problems import ProblemError
from elastream.web.rules_versions import RulesVersions, as_of_now


class RuleRemark(View):
    text: str
    line: int | None = None


class RulesCheck(View):
    """What is wrong with rules, or what they say."""

    errors: tuple[RuleRemark, ...] = Field(description="the rules cannot be used")
    warnings: tuple[RuleRemark, ...] = Field(description="they can be used, but look like a mistake")
    sentences: tuple[str, ...] = Field(description="each rule in English")


class RulesVersionView(View):
    version: str
    at_s: float = Field(description="when it was put in place")
    who: str
    text: str


class RulesView(View):
    file: str
    text: str
    version: str
    editable: bool
    verdict: RulesCheck


@dataclass(frozen=True, kw_only=True)
class RulesFile:
    path: Path
    dataflow: Dataflow | None
    """None where operators come and go."""

    @property
    def editable(self) -> bool:
        return self.path.suffix != ".py"

    def read(self) -> RulesView:
        text = self._text()
        verdict = self.check(text) if self.editable else RulesCheck(errors=(), warnings=(), sentences=())
        return RulesView(
            file=self.path.name, text=text, version=_version(text), editable=self.editable, verdict=verdict
        )

    def check(self, text: str) -> RulesCheck:
        if not self.editable:
            raise ProblemError(HTTPStatus.CONFLICT, "rules in Python are a program: edit the file itself")
        document = parse_rules(text, self.path.name)
        errors = [RuleRemark(text=problem.text, line=problem.line) for problem in document.problems]
        try:
            check_usable(document.rules, self.dataflow)
        except InvalidInput as error:
            errors.append(RuleRemark(text=str(error)))
        return RulesCheck(
            errors=tuple(errors),
            warnings=tuple(
                RuleRemark(text=doubt.text, line=document.lines[doubt.rule] if document.lines else None)
                for doubt in doubts(document.rules, self.dataflow)
            ),
            sentences=tuple(sentence(rule) for rule in document.rules.rules),
        )

    def write(self, text: str, edited: str | None, who: str) -> RulesView:
        """Whole or not at all; refused where someone else has changed them since they were read."""
        try:
            with _alone_in(self.path.resolve().parent):
                before = self._text()
                if edited is not None and edited != _version(before):
                    raise ProblemError(HTTPStatus.CONFLICT, "the rules were changed meanwhile: look at them again")
                self._note(before, text, who)
                _replace(self.path.resolve(), text)
        except OSError as error:
            detail = f"{self.path.name}: cannot be written: {error.strerror}"
            raise ProblemError(HTTPStatus.CONFLICT, detail) from None
        except ElastreamError as error:
            raise ProblemError(HTTPStatus.CONFLICT, str(error)) from None
        return self.read()

    def versions(self) -> tuple[RulesVersionView, ...]:
        """The oldest first."""
        return tuple(RulesVersionView(**asdict(one)) for one in RulesVersions(self.path.resolve()).read())

    def text_of(self, version: str | None) -> str:
        """Of that version, or of the one that was there before the present one."""
        now = _version(self._text())
        known = self.versions()
        if version is None:
            places = [place for place, one in enumerate(known) if one.version == now]
            before = known[: places[-1]] if places else known
            found = [one for one in before if one.version != now]
        else:
            found = [one for one in known if one.version == version]
        if not found:
            what = "there is no version before this one" if version is None else f"there is no version {version!r}"
            raise ProblemError(HTTPStatus.CONFLICT, f"{what} to go back to")
        return found[-1].text

    def _note(self, before: str, text: str, who: str) -> None:
        versions = RulesVersions(self.path.resolve())
        known = versions.read()
        is_known = bool(known) and known[-1].version == _version(before)  # else an editor was here
        found = [] if is_known else [as_of_now(_version(before), "the file", before)]
        versions.note(*found, as_of_now(_version(text), who, text))

    def _text(self) -> str:
        try:
            return read_text(self.path)
        except InvalidInput as error:
            raise ProblemError(HTTPStatus.NOT_FOUND, str(error)) from None


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Of all who write over HTTP there, also for other masters: between looking and writing nobody else writes."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _replace(path: Path, text: str) -> None:
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, beside)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def _version(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
