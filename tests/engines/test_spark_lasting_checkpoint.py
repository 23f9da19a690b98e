"""What a kill leaves of the first batch of a checkpoint goes away; what other batches have left stays."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from elastream import whole_files
from elastream.engines.spark.lasting_checkpoint import StateFiles, mend

LEFT = ("offsets/.0.a7e1.tmp", "state/0/_metadata/metadata", "state/0/3/_metadata/schema")
OFFSETS = 'v1\n{"conf":{}}\n{"record":1,"commit":1}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def written(checkpoint: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text(text)


def found(checkpoint: Path) -> list[str]:
    return sorted(str(path.relative_to(checkpoint)) for path in checkpoint.rglob("*") if path.is_file())


def test_the_first_batch_was_not_begun_and_all_of_it_goes(tmp_path: Path) -> None:
    written(tmp_path, {"metadata": '{"id":"7"}', **dict.fromkeys(LEFT, "v1")})
    assert sorted(mend(tmp_path)) == sorted(LEFT)
    assert found(tmp_path) == ["metadata"], "the query keeps its id"
    assert not any((tmp_path / name).exists() for name in ("offsets", "state")), "empty folders count, too"


def test_offsets_of_the_first_batch_that_are_torn_take_its_state_with_them(tmp_path: Path) -> None:
    written(tmp_path, {"offsets/0": "", "state/0/0/1.changelog": "half"})
    assert sorted(mend(tmp_path)) == ["offsets/0", "state/0/0/1.changelog"]
    assert found(tmp_path) == []


@pytest.mark.parametrize("known", [{"offsets/0": OFFSETS}, {"commits/41": COMMIT}])
def test_nothing_goes_where_a_batch_is_known(tmp_path: Path, known: dict[str, str]) -> None:
    """Without its offsets a batch that is done has lost something that nobody may guess: Spark refuses it."""
    files = known | dict.fromkeys(LEFT, "v1")
    written(tmp_path, files)
    assert mend(tmp_path) == []
    assert found(tmp_path) == sorted(files)


def test_what_is_new_in_a_state_is_synced_once_also_where_spark_renames_it_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = "state/0/3/12.changelog"
    written(tmp_path, {"state/0/3/.40.zip.3506.tmp": "PK", "state/0/3/41.changelog": "changes", old: "long there"})
    os.utime(tmp_path / old, (1.0, 1.0))
    opens, synced = os.open, list[str]()

    def renamed_before_it_is_opened(path: Path, flags: int) -> int:
        beside = tmp_path / "state/0/3/.40.zip.3506.tmp"
        if beside.exists():
            beside.rename(beside.with_name("40.zip"))
        opened = opens(path, flags)
        synced.append(Path(path).name)
        return opened

    monkeypatch.setattr(os, "open", renamed_before_it_is_opened)
    monkeypatch.setattr(whole_files, "_threads", lambda: SimpleNamespace(map=map))  # one after the other
    state = StateFiles(tmp_path)
    for expected in (["0", "3", "41.changelog", "state", tmp_path.name], ["3", "40.zip"], []):
        synced.clear()
        state.sync()
        assert sorted(synced) == sorted(expected)
    written(tmp_path, {"state/0/3/42.changelog": "more", "state/0/4/42.changelog": "of another partition"})
    state.sync()
    assert sorted(synced) == ["0", "3", "4", "42.changelog", "42.changelog"]


@pytest.mark.parametrize("torn", ["", "\0" * 40, 'v1\n{"path":"a","batchId":7}\n{"path":"b","ba'])
def test_what_a_source_had_written_down_is_torn_also_without_checksums(tmp_path: Path, torn: str) -> None:
    whole = 'v1\n{"path":"a","batchId":6}'
    logs = {"offsets/6": OFFSETS, "commits/6": COMMIT, "sources/0/6": whole, "sources/1/6": "v1\n1763580"}
    written(tmp_path, {**logs, "sources/0/7": torn})
    assert mend(tmp_path) == ["sources/0/7"]
    assert found(tmp_path) == sorted(logs)
