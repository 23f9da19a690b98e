"""Recordings in the browser: whole ones, ones that are being written, and ones that cannot be read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from serving import in_order, line_of, word_count, write

from elastream import __version__
from elastream.errors import InvalidInput
from elastream.manager.events import Trouble
from elastream.measurement import Snapshot
from elastream.measurement.recording import RecordingWriter, RunHeader
from elastream.web.feed import Feed
from elastream.web.following import Followed, go_on, load

HAPPENED = in_order(word_count(3))


def texts(feed: Feed) -> list[str]:
    return [event.text for event in feed.history.events()]


class TestFollowing:
    def test_a_recording_is_shown_like_the_run_itself(self, tmp_path: Path) -> None:
        path, live, recorded = tmp_path / "recording.jsonl", Feed("p"), Feed("p")
        header = RunHeader(pipeline="clicks", policy="ds2", engine="simulated")
        with RecordingWriter(path) as writer:
            writer.begin(header)
        write(path, HAPPENED)
        live.begin(header)
        for one in HAPPENED:
            (live.snapshot if isinstance(one, Snapshot) else live.event)(one)
        load(Followed(path), recorded)
        ours, theirs = recorded.history.view(), live.history.view()
        assert ours.model_copy(update={"id": ""}) == theirs.model_copy(update={"id": ""})
        assert (ours.about.pipeline, ours.about.policy) == ("clicks", "ds2")

    def test_what_is_added_comes_and_half_a_line_waits_for_its_end(self, tmp_path: Path) -> None:
        path, feed = tmp_path / "recording.jsonl", Feed("p")
        write(path, HAPPENED[:10])
        followed = Followed(path)
        load(followed, feed)
        seen = feed.history.id
        line = json.dumps(line_of(HAPPENED[10])) + "\n"
        with path.open("a") as file:
            file.write(line[:50])
            file.flush()
            go_on(followed, feed)
            assert followed.cut_off
            assert feed.history.id == seen
            file.write(line[50:])
        write(path, HAPPENED[11:])
        go_on(followed, feed)
        whole = Feed("p")
        load(Followed(path), whole)
        assert feed.history.columns() == whole.history.columns()
        assert len(feed.history.events()) == len(whole.history.events())
        assert not followed.cut_off

    def test_one_that_is_written_anew_is_shown_anew(self, tmp_path: Path) -> None:
        path, feed = tmp_path / "recording.jsonl", Feed("p")
        write(path, HAPPENED)
        followed = Followed(path)
        load(followed, feed)
        path.write_text("")
        write(path, HAPPENED[:3])
        go_on(followed, feed)
        only = Feed("p")
        load(Followed(path), only)
        assert feed.history.columns() == only.history.columns()

    @pytest.mark.parametrize("changed", [0, -1], ids=["at its beginning", "at its end"])
    @pytest.mark.parametrize("added", [0, 2], ids=["as long as before", "longer"])
    def test_so_is_one_that_was_written_over_between_two_looks(
        self, tmp_path: Path, changed: int, added: int
    ) -> None:
        path, feed = tmp_path / "recording.jsonl", Feed("p")
        told = [Trouble(at_s=0.0, what=f"{number:03} and so on") for number in range(400)]
        write(path, told)
        followed, size = Followed(path), path.stat().st_size
        load(followed, feed)
        told[changed] = Trouble(at_s=0.0, what="something new")
        told += told[:added]
        path.write_text("")
        write(path, told)
        assert (path.stat().st_size == size) == (not added), "its length tells nothing"
        go_on(followed, feed)
        assert texts(feed) == [trouble.what for trouble in told]

    def test_one_that_is_gone_is_told_once_and_shown_anew_when_there_is_another(self, tmp_path: Path) -> None:
        path, feed = tmp_path / "recording.jsonl", Feed("p")
        write(path, HAPPENED[:5])
        followed = Followed(path)
        load(followed, feed)
        known = texts(feed)
        path.unlink()
        for _ in range(3):
            go_on(followed, feed)
        assert texts(feed) == [*known, f"{path}: there is no such file"]
        write(path, HAPPENED[:3])
        go_on(followed, feed)
        again = texts(feed)
        path.unlink()
        go_on(followed, feed)
        assert texts(feed) == [*again, f"{path}: there is no such file"], "it is news once more"

    def test_one_that_nobody_has_touched_for_long_is_over(self, tmp_path: Path) -> None:
        path = tmp_path / "recording.jsonl"
        write(path, HAPPENED[:5])
        fresh, old = Feed("p"), Feed("p")
        load(Followed(path), fresh)
        os.utime(path, (0, 0))
        load(Followed(path), old)
        assert (fresh.history.live, old.history.live) == (True, False)

    def test_it_is_over_once_nothing_more_comes_and_goes_on_when_something_does(self, tmp_path: Path) -> None:
        path, feed = tmp_path / "recording.jsonl", Feed("p")
        write(path, HAPPENED[:5])
        followed = Followed(path)
        load(followed, feed)
        go_on(followed, feed)
        assert feed.history.live
        os.utime(path, (0, 0))
        go_on(followed, feed)
        assert not feed.history.live
        told = feed.history.id
        go_on(followed, feed)
        assert feed.history.id == told, "it is told once"
        write(path, HAPPENED[5:])
        go_on(followed, feed)
        assert feed.history.live

    def test_a_reading_that_came_late_to_a_master_is_known_and_not_shown(self, tmp_path: Path) -> None:
        path, feed = tmp_path / "recording.jsonl", Feed("p")
        late = {"operator": "words", "instance": 0, "agent": "a", "taken_at_s": 1.0, "values": {"latency": 3.0}}
        write(path, HAPPENED[:2])
        followed = Followed(path)
        load(followed, feed)
        seen = feed.history.id
        with RecordingWriter(path) as writer:
            writer.write({"event": "late_reading", **late})
        go_on(followed, feed)
        assert feed.history.id == seen, "nothing is told of it"
        load(Followed(path), Feed("p"))  # and one that has it is not refused

    def test_a_line_that_cannot_be_read_is_told_and_passed_over(self, tmp_path: Path) -> None:
        path, feed = tmp_path / "recording.jsonl", Feed("p")
        write(path, HAPPENED[:2])
        followed = Followed(path)
        load(followed, feed)
        with path.open("a") as file:
            file.write("nonsense\n")
        write(path, [Trouble(at_s=1e9, what="after it")])
        go_on(followed, feed)
        assert "line 3: not valid JSON" in texts(feed)[-2]
        assert texts(feed)[-1] == "after it"

    def test_bytes_that_are_no_text_take_nothing_with_them(self, tmp_path: Path) -> None:
        path, feed = tmp_path / "recording.jsonl", Feed("p")
        write(path, HAPPENED[:2])
        followed = Followed(path)
        load(followed, feed)
        write(path, [Trouble(at_s=1e9, what="before it")])
        with path.open("ab") as file:
            file.write(b"\xff\xfe\n")
        write(path, [Trouble(at_s=1e9, what="after it")])
        go_on(followed, feed)
        assert texts(feed)[-3:] == ["before it", f"{path}: line 4: not a UTF-8 text (byte 0)", "after it"]

    def test_what_is_told_of_the_file_is_told_at_the_time_of_its_newest_window(self, tmp_path: Path) -> None:
        path, feed = tmp_path / "recording.jsonl", Feed("p")
        write(path, HAPPENED[:2])
        followed = Followed(path)
        load(followed, feed)
        windows = [one for one in HAPPENED[2:] if isinstance(one, Snapshot)]
        write(path, windows)
        with path.open("a") as file:
            file.write("nonsense\n")
        go_on(followed, feed)
        assert feed.history.events()[-1].at_s == windows[-1].at_s < 1_000, "a simulated time, not that of a clock"


class TestRefusals:
    def refusal(self, path: Path) -> str:
        with pytest.raises(InvalidInput) as error:
            load(Followed(path), Feed("p"))
        return str(error.value)

    def test_no_file(self, tmp_path: Path) -> None:
        assert self.refusal(tmp_path / "none.jsonl") == f"{tmp_path / 'none.jsonl'}: there is no such file"

    def test_a_folder(self, tmp_path: Path) -> None:
        assert "cannot be read" in self.refusal(tmp_path)

    @pytest.mark.parametrize(
        ("line", "says"),
        [
            (
                '{"event": "teleported", "at_s": 1}',
                f"this version of elastream ({__version__}) does not know events of the kind 'teleported'; "
                "the recording may be from a newer one",
            ),
            ('{"event": "recording", "version": 99}', "has version 99, written by a newer elastream"),
            ('{"event": "trouble"}', "not an event of the kind 'trouble': at_s: is missing"),
            (
                '{"event": "acted", "at_s": 1, "number": 1, "outcome": '
                '{"plan": {"words": 0}, "succeeded": true, "took_s": 1}}',
                "not an event of the kind 'acted': operator 'words': parallelism must be at least 1, found 0",
            ),
            (
                '{"event": "acted", "at_s": 1, "number": 1, "outcome": '
                '{"plan": {"words": 1}, "succeeded": true, "took_s": NaN}}',
                "not an event of the kind 'acted': outcome.took_s: Input should be a finite number, found nan",
            ),
            ('{"operators": [], "colour": 3}', "unknown key 'colour'"),
            ("[]", "a JSON object was expected"),
            ("{", "not valid JSON"),
        ],
        ids=[
            "newer",
            "newer by its version",
            "not whole",
            "no instances",
            "no number",
            "a newer snapshot",
            "no object",
            "no JSON",
        ],
    )
    def test_a_line_is_named(self, tmp_path: Path, line: str, says: str) -> None:
        path = tmp_path / "recording.jsonl"
        write(path, HAPPENED[:1])
        with path.open("a") as file:
            file.write(line + "\n")
        refused = self.refusal(path)
        assert f"{path}: line 2: " in refused
        assert says in refused

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        path = tmp_path / "recording.jsonl"
        path.write_bytes(b"\xff\xfe\n")
        assert "line 1: not a UTF-8 text" in self.refusal(path)
