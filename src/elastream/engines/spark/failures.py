"""Why a query failed, from all that Spark says about it: the one line that the user can act on.

What a query died of is a text of 20 to 300 lines, and the line that counts is somewhere in it. Three kinds:

    a traceback of Python, often of a worker within one of the driver: the last line of the last traceback
    an exception of Java's, with what it was caused by: the last cause that says something
    an exception of Spark's with a condition, such as [DIVIDE_BY_ZERO], and the line of the user's file that asked

Pure: from text to values. `tests/engines/spark_error_texts` has texts that Spark wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

_MOST_LETTERS = 300
_TRACEBACK = "Traceback (most recent call last):"
_ABOUT_THE_QUERY = "\n=== Streaming Query ==="
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)$')
_ERROR = re.compile(r"^(?P<path>(?:[\w$]+\.)*)(?P<name>[A-Za-z_]\w*)(?:: ?(?P<said>.*))?$")
_CAUSE = re.compile(r"^Caused by: ((?:[\w$]+\.)+[\w$]+: .+)$", re.MULTILINE)
_TASK = re.compile(r"most recent failure: Lost task .*?\) \(.*?\): (.+)$", re.MULTILINE)
_CALLED_FROM = re.compile(r'^".+" was called from\n(?P<file>.+):(?P<line>\d+)$', re.MULTILINE)
_SQL_STATE = re.compile(r" SQLSTATE: \w{5}$")
_LATE_WORKER = re.compile(r"Python worker (?:failed to connect back|to connect back)")
# what is not of the user: Spark, pandas and others that are installed, Python itself, elastream
_NOT_THE_USERS = re.compile(r"/(?:site|dist)-packages/|/lib/python3\.\d+/|/elastream/engines/|^<|\.pyx$|\.zip/")
_OWN_ERRORS = ("ElastreamError", "InvalidInput", "BrokerAway")
_JAVA_ERROR = "Py4JJavaError"
_IN_PLAIN_WORDS = (
    (
        "KAFKA_DATA_SOURCE_NOT_ENABLED",
        "Spark's connector for Kafka is not there; `elastream kafka fetch` brings it",
    ),
    ("UnknownTopicOrPartitionException", "there is no such topic"),
    ("Timed out waiting for a node assignment", "no broker of Kafka answers"),
    ("Failed to update metadata after", "no broker of Kafka answers"),
    (
        "Failed to create new KafkaAdminClient",
        "kafka.bootstrap.servers is not HOST:PORT, a host of it is not known, or a security setting is wrong",
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    reason: str
    """In one line."""
    place: str | None = None
    """In the user's own files, where Spark tells: `job.py:13, in check`."""
    late_worker: bool = False
    """No fault of the pipeline's: a Python worker took too long to start."""

    @property
    def text(self) -> str:
        return self.reason if self.place is None else f"{self.reason} ({self.place})"


@dataclass(frozen=True, kw_only=True, slots=True)
class StepFailure:
    """A failure of a step's query, as it is told."""

    operator: str
    failure: Failure
    batch: int | None = None
    """None where it failed before it had one."""
    before: int = 0
    """Failures in a row before this one."""
    most: int
    """So many in a row are followed by another try."""
    input: str | None = None
    """Some of what the batch was to read, as text."""

    @property
    def told(self) -> str:
        what = self.operator if self.batch is None else f"{self.operator}: batch {self.batch}"
        if self.failure.late_worker:
            tries = "the batch is tried again" if self._is_tried_again else "it was the last try"
            return f"operator {self.operator}: {self.failure.reason}; {tries}"
        again = f" again ({self.before + 1} times now)" if self.before else ""
        shown = f"; {self.input}" if self.input and not self.before else ""
        tries = (
            f"; it is tried again, at most {self.most} times" if self._is_tried_again and not self.before else ""
        )
        return f"{what} failed{again}: {self.failure.text}{shown}{tries}"

    @property
    def last(self) -> str:
        """What a run ends with that gives up."""
        batch = "" if self.batch is None else f", in batch {self.batch}"
        shown = f"; {self.input}" if self.input else ""
        times = f"{self.operator!r} failed {self.before + 1} times, the last time with"
        return f"{times}: {self.failure.text}{batch}{shown}"

    @property
    def _is_tried_again(self) -> bool:
        return self.before < self.most


def failure_of(text: str) -> Failure:
    """What Spark says, in short."""
    said = text.split(_ABOUT_THE_QUERY, 1)[0]
    if _LATE_WORKER.search(said):
        return Failure(reason="a Python worker did not connect in time (busy machine?)", late_worker=True)
    if _TRACEBACK not in said:
        return _of_java(said)
    frames, error = _last_traceback(said)
    if error.startswith(_JAVA_ERROR):
        return _of_java(said.rsplit(_JAVA_ERROR, 1)[1])
    return Failure(reason=_in_plain_words(error), place=_called_from(said) or _place(frames))


def _last_traceback(said: str) -> tuple[list[re.Match[str]], str]:
    """Its frames, and what follows them: the error, in one line."""
    lines = said.rsplit(_TRACEBACK, 1)[1].strip("\n").split("\n")
    frames = [found for line in lines if (found := _FRAME.match(line))]
    after = next((index for index, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
    return frames, _python_error(lines[after:]) or "an error that says nothing"


def _python_error(lines: Sequence[str]) -> str:
    """`ValueError: why`, with all lines of the message; the name without the modules that it is in."""
    message = " ".join(_until_details(lines))
    found = _ERROR.match(message)
    if found is None:
        return message
    name, why = found["name"], found["said"] or ""
    if name in _OWN_ERRORS:
        return why
    return _SQL_STATE.sub("", f"{name}: {why}" if why else name)


def _until_details(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        if not line.strip() or line.startswith(("==", "\tat ", ": ", "JVM stacktrace:")):
            return
        yield line.strip()


def _of_java(said: str) -> Failure:
    causes = _CAUSE.findall(said)
    lost = _TASK.findall(said)
    first = next((line for line in said.splitlines() if _has_words(line)), "it ended without a reason")
    line = (causes or lost or [first])[-1].removeprefix(": ").strip()
    return Failure(reason=_in_plain_words(_python_error([line]) or line), place=_called_from(said))


def _in_plain_words(reason: str) -> str:
    plain = next((words for sign, words in _IN_PLAIN_WORDS if sign in reason), None)
    return _bounded(f"{plain}: {reason}" if plain else reason)


def _has_words(line: str) -> bool:
    return bool(line.strip()) and not line.startswith((": An error occurred while calling", "\tat "))


def _called_from(said: str) -> str | None:
    found = _CALLED_FROM.search(said)
    return None if found is None else f"{PurePath(found['file']).name}:{found['line']}"


def _place(frames: Sequence[re.Match[str]]) -> str | None:
    """The innermost that is the user's own."""
    own = [frame for frame in frames if not _NOT_THE_USERS.search(frame["file"])]
    if not own:
        return None
    return f"{PurePath(own[-1]['file']).name}:{own[-1]['line']}, in {own[-1]['function']}"


def _bounded(text: str) -> str:
    text = text.removesuffix(".")  # more of the sentence comes behind it
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 1]}…"
