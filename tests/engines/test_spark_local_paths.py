"""Folders as Spark is told of them, and those that are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elastream.decentralized.spark.launch import run_folder
from elastream.engines.spark.local_paths import for_spark, local_folder
from elastream.engines.spark.pipeline import Pipeline
from elastream.errors import InvalidInput


def test_a_path_has_its_scheme_and_nothing_in_it_is_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert for_spark(Path("/a b/100%/%20/#?")) == "file:///a b/100%/%20/#?"
    assert for_spark(Path("out/run")) == f"file://{tmp_path}/out/run"


def test_a_link_is_kept_and_what_is_above_one_is_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "far" / "away").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "far" / "away")
    assert for_spark(link / "run") == f"file://{link}/run", "elsewhere it may lead elsewhere"
    assert for_spark(link / ".." / "run") == f"file://{tmp_path}/far/run", "as the operating system has it"


@pytest.mark.parametrize(
    ("found", "shown", "scheme"),
    [
        ("hdfs://name:8020/user/me/run", "hdfs://name:8020/user/me/run", "hdfs"),
        ("s3a://bucket/run", "s3a://bucket/run", "s3a"),
        ("file:///data/run", "file:///data/run", "file"),
        ("viewfs:/run", "viewfs://run", "viewfs"),
    ],
)
def test_a_folder_with_a_scheme_is_refused_with_what_is_expected(found: str, shown: str, scheme: str) -> None:
    expected = (
        f"{shown}: expected a path of this machine, such as /shared/run, at which every node sees the same "
        f"folder; found one with the scheme {scheme!r}"
    )
    with pytest.raises(InvalidInput) as error:
        local_folder(Path(found))
    assert str(error.value) == expected
    with pytest.raises(InvalidInput) as error:
        Pipeline("p").keep("all", reads="numbers", folder=Path(found))
    assert str(error.value) == f"pipeline 'p': 'all': {expected}"
    with pytest.raises(InvalidInput):
        run_folder(Path(found), "p")


def test_a_folder_may_have_a_colon_and_must_be_in_utf_8(tmp_path: Path) -> None:
    assert local_folder(tmp_path / "hdfs:" / "a:b") == tmp_path / "hdfs:" / "a:b"
    with pytest.raises(InvalidInput, match="a folder has a name in UTF-8, found one that is not"):
        local_folder(Path(os.fsdecode(b"/tmp/\xff")))
