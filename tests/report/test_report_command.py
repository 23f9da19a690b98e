"""`elastream report` as a user meets it: the page, the pictures beside it, and recordings that are not whole."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from elastream.cli import main
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.manager.events import Accounted, event_to_json
from elastream.measurement import Snapshot
from elastream.measurement.accounts import Accounts, InputAccount, StepAccount
from elastream.measurement.recording import Recording, RunHeader
from elastream.testing import alike, chain, snapshot_of
from tests.report.runs import decided, grown, recording, window, write

PNG = b"\x89PNG\r\n\x1a\n"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Exit status, standard output and standard error of the command, in an empty folder."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def run_command(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["elastream", "report", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, captured.out, captured.err

    return run_command


class Page(HTMLParser):
    """What a browser would make of a page: its elements, its attributes and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(run: Run, tmp_path: Path, found: Recording, *arguments: str) -> Page:
    path = write(tmp_path / "clicks.jsonl", found)
    status, _, err = run(path, *arguments)
    assert (status, err) == (0, "")
    return Page((tmp_path / "out" / "clicks-report.html").read_text())


# What is written


def test_a_report_is_one_page_and_its_pictures(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "clicks.jsonl", grown())

    status, printed, _ = run(path, "--out", "there", "--against", "threshold")

    assert status == 0
    assert "changed the parallelism once" in printed
    assert sorted(file.name for file in (tmp_path / "there").iterdir()) == [
        "clicks-report-check.png",
        "clicks-report-run.png",
        "clicks-report-what-if.png",
        "clicks-report.html",
    ]
    assert all(file.read_bytes().startswith(PNG) for file in (tmp_path / "there").glob("*.png"))


def test_the_page_tells_the_run_and_what_is_simulated(run: Run, tmp_path: Path) -> None:
    page = page_of(run, tmp_path, grown(), "--against", "threshold,ideal", "--cost-per-instance-hour", "2")
    assert "elastream (ds2) changed the parallelism once" in page.text
    assert "map 1 → 3" in page.text
    assert "threshold (simulated)" in page.text
    assert "ds2, as recorded (measured)" in page.text
    assert "How far the model can be trusted" in page.text
    assert f"{495 / 3600 * 2:.2f}" in page.text, "the cost of 495 instance seconds at 2 an hour"


def test_the_page_needs_no_network_and_no_scripts(run: Run, tmp_path: Path) -> None:
    page = page_of(run, tmp_path, grown(), "--against", "ideal")
    assert page.elements.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "base", "form"})
    fetched = [value for name, value in page.attributes if name in ("src", "href", "xlink:href", "data", "srcset")]
    assert all(value.startswith("#") for value in fetched), "only to places within the page"
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)), "the pictures do not mix up their parts"
    assert {value[1:] for value in fetched} <= set(ids)


def test_json_has_what_the_page_tells(run: Run, tmp_path: Path) -> None:
    status, printed, _ = run(write(tmp_path / "clicks.jsonl", grown()), "--against", "ideal", "--json")
    found = json.loads(printed)
    assert status == 0
    assert found["cost"]["instance_s"] == 495
    assert [outcome["policy"] for outcome in found["simulated"]] == ["ideal"]
    assert found["decisions"][0]["verdict"] == "effective"
    assert Path(found["files"][0]).is_file()


def test_the_page_tells_where_every_record_went_and_what_was_lost(run: Run, tmp_path: Path) -> None:
    step = StepAccount(
        operator="map",
        inputs=(InputAccount(producer="source", published=42_000, read=41_990, waiting=9),),
        records_in=41_990,
        late=1_234,
    )
    ended = Accounted(at_s=246, accounts=Accounts(steps=(step,)))
    found = replace(grown(), events=(*grown().events, event_to_json(ended)))
    text = page_of(run, tmp_path, found, "--against", "none").text
    assert "Where every record went" in text
    assert "map41,990—1,2349no" in text, "a row of the table"
    assert "map dropped at least 1,234 records as late: raise the delay of its watermark" in text
    assert "of which it has read 41,990 and 9 wait for it: 1 is missing" in text
    printed = json.loads(run(write(tmp_path / "again.jsonl", found), "--against", "none", "--json")[1])
    assert printed["accounts"]["records"]["map"]["late"] == 1_234
    assert len(printed["losses"]) == 2


def test_the_folder_of_a_run_is_enough(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "wordcount" / "recording.jsonl", grown())
    assert run(tmp_path / "wordcount", "--against", "none")[0] == 0
    assert (tmp_path / "out" / "wordcount-report.html").is_file()


# HTML in names


NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><b>",
    r"$\frac{a}$ & b",
    "_hidden",
)


def test_names_are_text_whatever_they_contain(run: Run, tmp_path: Path) -> None:
    readings = [reading for name in NAMES for reading in alike(name, useful_share=0.5)]
    snapshot = snapshot_of(edges=chain("source", *NAMES), source_rates={"source": 100.0}, readings=readings)
    told = decided(1, 60, 1, 2, dry_run=True, why=f"because of {NAMES[0]}")
    header = RunHeader(pipeline=NAMES[1], policy="ds2")
    found = recording([replace(snapshot, at_s=60)], [told], headers=(header,))

    page = page_of(run, tmp_path, found, "--against", "ideal")

    assert page.elements.isdisjoint({"script", "img"})
    assert not [attribute for attribute, _ in page.attributes if attribute.startswith("on")]
    assert f"because of {NAMES[0]}" in page.text
    for name in NAMES:
        assert page.text.count(name[:20]) >= 4, f"{name} in the tables and in the legend of a picture"


# Recordings that are not whole


def test_a_recording_that_is_being_written_is_reported_as_far_as_it_goes(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "clicks.jsonl", grown())
    with path.open("a") as file:
        file.write('{"event":"snapshot","operators":[{"na')

    status, printed, _ = run(path, "--against", "none")

    assert status == 0
    assert "The last line of the recording is cut off" in printed
    assert "The last line of the recording is cut off" in (tmp_path / "out" / "clicks-report.html").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the recording is empty: no line has a snapshot"),
        ('{"event":"recording","version":1}\n', "the recording is empty: no line has a snapshot"),
        ('{"event":"recording","version":5}\n', "this one reads versions up to 4"),
        ("\x00\x01\n", "line 1: not valid JSON"),
        (
            '{"event":"recording","version":1,"pipeline":"a\\u0001b"}\n',
            "line 1: pipeline: a text that can be shown",
        ),
        (
            '{"event":"trouble","at_s":1,"what":"\\ud800"}\n',
            "line 1: not valid JSON: a text has half of a character",
        ),
        (
            '{"operators":[{"name":"a\\u0001","source":true}],"edges":[],"source_rates":{"a\\u0001":1},"readings":[]}\n',
            "line 1: operators[0]: an operator's name: a text that can be shown was expected, found U+0001 in it",
        ),
    ],
)
def test_a_recording_that_tells_nothing_is_refused(run: Run, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "clicks.jsonl"
    path.write_text(text)
    status, printed, err = run(path)
    assert (status, printed) == (2, "")
    assert err.startswith(f"error: {path}: ")
    assert said in err
    assert not (tmp_path / "out").exists()


def test_an_operator_that_never_worked_leaves_out_only_what_is_simulated(run: Run, tmp_path: Path) -> None:
    idle = replace(window(60, rate=0.0), readings=())
    page = page_of(run, tmp_path, recording([idle, replace(idle, at_s=120)]))
    assert "Nothing was simulated: no complete window tells what 'map' can do" in page.text
    assert "The parallelism stayed at 1 instance" in page.text


def test_a_pipeline_of_sources_alone_is_told_and_not_simulated(run: Run, tmp_path: Path) -> None:
    source = Dataflow.of([Operator(name="source", source=True)], [])
    snapshots = [
        Snapshot(dataflow=source, plan=Plan(), source_rates={"source": 5.0}, readings=(), at_s=at_s)
        for at_s in (60.0, 120.0)
    ]
    page = page_of(run, tmp_path, recording(snapshots, headers=(RunHeader(policy="ds2"),)))
    assert "about 5 records/s arrived" in page.text
    assert "Nothing was simulated: there is nothing to scale" in page.text


@pytest.mark.parametrize("now_s", [1.7e12, 1e300], ids=["milliseconds", "of no clock"])
def test_times_that_are_no_seconds_since_1970_have_no_date(run: Run, tmp_path: Path, now_s: float) -> None:
    page = page_of(run, tmp_path, recording([window(now_s), window(now_s * 1.1)]), "--against", "none")
    assert "The parallelism stayed at 1 instance" in page.text
    assert "UTC" not in page.text


def test_a_wall_clock_has_a_date(run: Run, tmp_path: Path) -> None:
    page = page_of(run, tmp_path, recording([window(1_790_000_060.0)]), "--against", "none")
    assert "2026-09-21 14:13 UTC" in page.text


def test_a_recorded_policy_that_is_not_known_leaves_out_only_its_simulation(run: Run, tmp_path: Path) -> None:
    found = recording(grown().snapshots, headers=(RunHeader(policy="mine"),))
    page = page_of(run, tmp_path, found, "--against", "threshold", "--set", "interval=60 s")
    assert "The recorded policy could not be simulated on the model: unknown policy 'mine'" in page.text
    assert "threshold (simulated)" in page.text


def test_options_of_a_recorded_policy_that_is_not_known_are_refused(run: Run, tmp_path: Path) -> None:
    found = recording(grown().snapshots, headers=(RunHeader(policy="mine"),))
    status, _, err = run(write(tmp_path / "clicks.jsonl", found), "--set", "speed=2")
    assert status == 2
    assert "unknown policy 'mine'" in err


def test_an_unknown_policy_is_refused(run: Run, tmp_path: Path) -> None:
    status, _, err = run(write(tmp_path / "clicks.jsonl", grown()), "--against", "ds3")
    assert status == 2
    assert "unknown policy 'ds3'" in err
