"""Recordings: written, read, cut off, taken up again, and refused with the line that is wrong."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from elastream.errors import ElastreamError, InvalidInput
from elastream.measurement import Snapshot
from elastream.measurement.recording import Recording, RecordingWriter, RunHeader, read_recording, snapshot_line
from elastream.measurement.snapshot_format import snapshot_to_json
from elastream.testing import alike, chain, snapshot_of


def window(at_s: float, *, rate: float = 100.0) -> Snapshot:
    snapshot = snapshot_of(
        edges=chain("source", "map", "sink"),
        source_rates={"source": rate},
        readings=[
            *alike("map", instances=2, records_per_s=rate / 2, backlog=3.0, selectivity={"sink": 0.5}),
            *alike("sink", records_per_s=rate / 2, useful_share=0.25),
        ],
    )
    return replace(snapshot, at_s=at_s)


def write(path: Path, *snapshots: Snapshot) -> str:
    """A recording of these; what its file then holds."""
    with RecordingWriter(path) as recording:
        for snapshot in snapshots:
            recording.snapshot(snapshot)
    return path.read_text()


def refused(path: Path, text: str, *, ignore_cut_off: bool = False) -> str:
    """What is said of a recording with this text, after the name of the file, which comes first."""
    path.write_text(text)
    with pytest.raises(InvalidInput) as error:
        read_recording(path, ignore_cut_off=ignore_cut_off)
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


# Written and read


def test_what_was_written_is_read(path: Path) -> None:
    windows = (window(60), replace(window(120, rate=50), gaps=("no answer from worker 3",)))

    write(path, *windows)

    assert read_recording(path) == Recording(snapshots=windows, events=())


def test_events_stand_among_the_snapshots_and_are_kept_as_they_are(path: Path) -> None:
    events = (
        {"event": "held", "at_s": 60.0, "why": "too soon → later"},
        {"event": "of tomorrow", "more": [1, None]},
    )
    with RecordingWriter(path) as recording:
        recording.snapshot(window(60))
        recording.write(events[0])
        recording.snapshot(window(120))
        recording.write(events[1])

    assert read_recording(path) == Recording(snapshots=(window(60), window(120)), events=events)


def test_a_file_of_plain_snapshots_is_a_recording(path: Path) -> None:
    lines = [json.dumps(snapshot_to_json(window(at_s))) for at_s in (60, 120)]

    path.write_text("\n\n".join(lines) + "\n  \n")

    assert read_recording(path).snapshots == (window(60), window(120))


def test_every_line_is_on_disk_before_the_next_is_written(path: Path) -> None:
    with RecordingWriter(path) as recording:
        recording.snapshot(window(60))
        assert read_recording(path).snapshots == (window(60),)


def test_the_folder_of_a_recording_is_made(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "today" / "run.jsonl"
    write(path, window(60))
    assert read_recording(path).snapshots == (window(60),)


def test_names_in_any_script_come_back(path: Path) -> None:
    snapshot = snapshot_of(
        edges=[("źródło\u2028", "数える")], source_rates={"źródło\u2028": 1.0}, readings=alike("数える")
    )
    write(path, snapshot)
    assert read_recording(path).snapshots == (snapshot,)


# What a run says of itself

HEADER = RunHeader(
    pipeline="<b>",
    engine="spark",
    policy="ds2",
    options={"catch_up_s": None, "tolerance": 0.1},
    knobs={"interval_s": 10.0},
)


def test_every_run_that_wrote_to_a_recording_says_what_it_was(path: Path) -> None:
    for header, at_s in ((HEADER, 60), (RunHeader(pipeline="later"), 120)):
        with RecordingWriter(path) as recording:
            recording.begin(header)
            recording.snapshot(window(at_s))

    found = read_recording(path)

    assert found.headers == (HEADER, RunHeader(pipeline="later"))
    assert found.snapshots == (window(60), window(120))
    assert found.events == ()


def test_the_first_line_has_the_version_of_the_format(path: Path) -> None:
    with RecordingWriter(path) as recording:
        recording.begin(HEADER)
    first = json.loads(path.read_text())
    assert (first["event"], first["version"]) == ("recording", 4)


def test_what_a_later_writer_of_the_same_version_adds_is_passed_over(path: Path) -> None:
    text = write(path, window(60))
    path.write_text('{"event":"recording","version":1,"weather":"fine"}\n' + text)
    assert read_recording(path).headers == (RunHeader(),)


def test_a_newer_recording_is_refused_before_anything_else_in_it_is_judged(path: Path) -> None:
    assert refused(path, '{"event":"recording","version":7}\n{"operatorz": []}\n') == (
        "line 1: this recording has version 7, written by a newer elastream; this one reads versions up to 4"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"event":"recording"}', "version: a whole number of at least 1 was expected, found None"),
        ('{"event":"recording","version":true}', "version: a whole number of at least 1 was expected, found True"),
        ('{"event":"recording","version":0}', "version: a whole number of at least 1 was expected, found 0"),
        ('{"event":"recording","version":1,"policy":3}', "policy: a text was expected, found 3"),
        ('{"event":"recording","version":1,"knobs":[]}', "knobs: an object was expected, found []"),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(path: Path, line: str, said: str) -> None:
    assert refused(path, f"{line}\n{json.dumps(snapshot_line(window(60)))}\n") == f"line 1: {said}"


# Taken up again


def test_a_recording_is_appended_to(path: Path) -> None:
    write(path, window(60))
    write(path, window(120))
    assert read_recording(path).snapshots == (window(60), window(120))


def test_a_recording_that_begins_anew_forgets_what_was_there(path: Path) -> None:
    write(path, window(60))
    with RecordingWriter(path, anew=True) as recording:
        recording.snapshot(window(30))
    assert read_recording(path).snapshots == (window(30),)


def test_a_line_that_was_cut_off_is_removed_by_the_next_writer(path: Path) -> None:
    whole = write(path, window(60))
    path.write_text(whole + whole[:50])

    with RecordingWriter(path) as recording:
        assert recording.repaired
        recording.snapshot(window(120))

    assert read_recording(path).snapshots == (window(60), window(120))


def test_a_line_that_only_lacks_its_end_is_kept_by_the_next_writer(path: Path) -> None:
    path.write_text(write(path, window(60)).rstrip("\n"))

    with RecordingWriter(path) as recording:
        assert not recording.repaired
        recording.snapshot(window(120))

    assert read_recording(path).snapshots == (window(60), window(120))


@pytest.mark.parametrize("before", ["", "whole"])
def test_there_is_nothing_to_repair_in_an_empty_or_whole_recording(path: Path, before: str) -> None:
    path.write_text(before and write(path, window(60)))
    with RecordingWriter(path) as recording:
        assert not recording.repaired


def test_wherever_a_line_is_cut_off_what_is_before_it_is_read(path: Path) -> None:
    whole = write(path, window(60))
    last = whole.rstrip("\n")
    for end in range(1, len(last), 7):
        path.write_text(whole + last[:end])
        found = read_recording(path, ignore_cut_off=True)
        assert (found.snapshots, found.cut_off) == ((window(60),), True)


def test_windows_that_end_no_later_than_one_before_are_left_out_and_counted(path: Path) -> None:
    with RecordingWriter(path) as recording:
        for at_s in (60, 180, 120, 120.5, 180, 181):  # the clock was set back by a minute
            recording.snapshot(window(at_s))
            recording.write({"event": "held", "at_s": at_s})

    found = read_recording(path)

    assert [snapshot.at_s for snapshot in found.snapshots] == [60, 180, 181]
    assert found.out_of_order == 3
    assert len(found.events) == 6, "what was done is kept"


# Refused


@pytest.mark.parametrize("text", ["", "\n\n", '{"event":"held","at_s":1,"why":"x"}\n'])
def test_a_recording_without_snapshots_is_empty(path: Path, text: str) -> None:
    assert refused(path, text) == "the recording is empty: no line has a snapshot"


def test_a_line_that_was_cut_off_is_named_with_what_to_do(path: Path) -> None:
    whole = write(path, window(60), window(120))

    assert refused(path, whole + whole[:50]) == (
        "line 3: the last line is cut off, as if its writer was stopped; --ignore-cut-off reads what is before it"
    )


def test_a_recording_that_is_only_a_part_of_a_line_is_empty(path: Path) -> None:
    assert "is empty" in refused(path, write(path, window(60))[:50], ignore_cut_off=True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("garbage", "line 2: not valid JSON: Expecting value (line 1, column 1)"),
        ('{"a": 1, "a": 2}', "line 2: the key 'a' is given twice in one object"),
        ("[1, 2]", "line 2: a JSON object was expected, found list"),
        ('{"event": 7}', "line 2: event must be a text, found 7"),
        ('{"event": "snapshot"}', "line 2: operators: is missing"),
        ('{"operatorz": []}', "line 2: unknown key 'operatorz' (did you mean 'operators'?)"),
        ("\0\0\0", "line 2: not valid JSON: Expecting value (line 1, column 1)"),
    ],
)
def test_garbage_in_the_middle_is_named_with_its_line(path: Path, line: str, said: str) -> None:
    text = write(path, window(60))
    later = json.dumps(snapshot_line(window(120)))
    assert refused(path, f"{text}{line}\n{later}\n", ignore_cut_off=True) == said


def test_a_reading_that_is_given_twice_is_named_with_its_line_and_place(path: Path) -> None:
    data = snapshot_to_json(window(60))
    data["readings"].append(data["readings"][0])

    assert refused(path, json.dumps(data) + "\n") == (
        "line 1: readings[3]: a second reading of 'map' instance 0 in one window"
    )


def test_a_file_that_is_not_there(path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"run\.jsonl: there is no such file"):
        read_recording(path)


# A writer that cannot write


def cannot_write(path: Path) -> str:
    with pytest.raises(ElastreamError) as error:
        write(path, window(60))
    return str(error.value)


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "run.jsonl"
    assert cannot_write(path) == f"{path}: cannot be written: File exists"


def test_a_path_that_is_a_folder(tmp_path: Path) -> None:
    assert cannot_write(tmp_path) == f"{tmp_path}: cannot be written: Is a directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_folder_that_is_read_only(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    path = tmp_path / "run.jsonl"
    assert cannot_write(path) == f"{path}: cannot be written: Permission denied"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux's")
def test_a_full_disk_is_told_by_each_write(path: Path) -> None:
    path.symlink_to("/dev/full")
    full = f"{path}: cannot be written: No space left on device"

    with RecordingWriter(path) as recording:
        for at_s in (60, 120):
            with pytest.raises(ElastreamError, match=full):
                recording.snapshot(window(at_s))


# A writer that is killed

_WRITES_UNTIL_KILLED = """
import json, sys
from pathlib import Path
from elastream.measurement.recording import RecordingWriter

line = json.loads(sys.stdin.readline())
with RecordingWriter(Path(sys.argv[1])) as recording:
    while True:
        line["at_s"] += 1
        recording.write(line)
        print(line["at_s"], flush=True)
"""


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_writer_leaves_every_line_that_it_told_of(path: Path, seed: int) -> None:
    wide = snapshot_of(
        edges=chain("source", "map"), source_rates={"source": 1.0}, readings=alike("map", instances=1_000)
    )
    command = [sys.executable, "-c", _WRITES_UNTIL_KILLED, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdin.write(json.dumps(snapshot_line(wide)) + "\n")
        writer.stdin.flush()
        told = [float(writer.stdout.readline()) for _ in range(random.Random(seed).randint(1, 20))]
        writer.kill()
    assert writer.returncode == -signal.SIGKILL

    found = read_recording(path, ignore_cut_off=True).snapshots
    assert [snapshot.at_s for snapshot in found[: len(told)]] == told

    write(path, replace(wide, at_s=found[-1].at_s + 1))
    assert len(read_recording(path).snapshots) == len(found) + 1


_KILLED_IN_A_LINE = """
import sys
from pathlib import Path

with Path(sys.argv[1]).open("a") as file:
    file.write(sys.stdin.readline()[:-20])  # as much of it as had reached the disk
    file.flush()
    print("now", flush=True)
    sys.stdin.read()  # until the end comes
"""


def test_a_writer_killed_in_the_middle_of_a_line_is_taken_up_after(path: Path) -> None:
    last_line = json.dumps(snapshot_line(window(120)))
    write(path, window(60))
    command = [sys.executable, "-c", _KILLED_IN_A_LINE, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdin.write(last_line + "\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "now\n"
        writer.kill()
    assert writer.returncode == -signal.SIGKILL

    with pytest.raises(InvalidInput, match="line 2: the last line is cut off"):
        read_recording(path)
    assert read_recording(path, ignore_cut_off=True).snapshots == (window(60),)

    with RecordingWriter(path) as recording:
        assert recording.repaired
        recording.snapshot(window(180))
    assert read_recording(path).snapshots == (window(60), window(180))
