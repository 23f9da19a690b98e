"""The folder of a pipeline: whose it is, and that no second driver writes to it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from elastream.engines.spark.state_folder import state_url
from elastream.engines.spark.workspace import Workspace
from elastream.errors import ElastreamError, InvalidInput

_HOLDER = """
import sys
from pathlib import Path
from elastream.engines.spark.workspace import Workspace
Workspace(Path(sys.argv[1]), "wordcount").open()
print("open", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_driver(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that runs the pipeline in this folder, as far as the folder can tell."""
    command = [sys.executable, "-c", _HOLDER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            yield process
        finally:
            process.kill()


def opened(folder: Path, pipeline: str = "wordcount") -> Workspace:
    workspace = Workspace(folder, pipeline)
    workspace.open()
    return workspace


# --- one driver at a time ---------------------------------------------------------------------------------------


def test_a_second_driver_is_refused_while_the_first_runs(tmp_path: Path) -> None:
    with another_driver(tmp_path), pytest.raises(ElastreamError, match="another process runs this pipeline here"):
        opened(tmp_path)


def test_a_killed_driver_leaves_no_lock(tmp_path: Path) -> None:
    with another_driver(tmp_path) as process:
        process.kill()
        process.wait()
        opened(tmp_path).close()
    assert (tmp_path / "checkpoints").is_dir()


def test_one_that_was_refused_or_closed_can_be_opened_again(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "wordcount")
    with another_driver(tmp_path), pytest.raises(ElastreamError):
        workspace.open()
    for _ in range(2):
        workspace.open()
        workspace.close()
    workspace.close()  # a second time does no harm
    assert workspace.control("words") == tmp_path / "control" / "words.json"


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(ElastreamError, match=r"run: cannot be used: Not a directory"):
        opened(tmp_path / "run")


# --- what it belongs to -----------------------------------------------------------------------------------------


def test_the_folder_of_another_pipeline_is_refused_and_not_locked(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.check_schemas({"words": "struct<word:string>"})
    first.close()
    with pytest.raises(
        InvalidInput, match=r"holds the checkpoints of the pipeline 'wordcount', not of 'sessions'"
    ):
        opened(tmp_path, "sessions")
    opened(tmp_path).close()


def test_a_schema_that_changed_is_refused_with_both(tmp_path: Path) -> None:
    workspace = opened(tmp_path)
    workspace.check_schemas({"words": "struct<word:string>"})
    with pytest.raises(
        InvalidInput, match=r"what 'words' puts out has changed .* was struct<word:string>, now it is"
    ):
        workspace.check_schemas({"words": "struct<word:bigint>"})
    workspace.check_schemas({"words": "struct<word:string>"})
    workspace.close()


def test_a_refused_schema_is_not_remembered(tmp_path: Path) -> None:
    workspace = opened(tmp_path)
    workspace.check_schemas({"words": "struct<word:string>"})
    with pytest.raises(InvalidInput):
        workspace.check_schemas({"counts": "struct<n:bigint>", "words": "struct<n:bigint>"})
    workspace.check_schemas({"counts": "struct<count:bigint>"})
    with pytest.raises(InvalidInput, match=r"was struct<count:bigint>"):
        workspace.check_schemas({"counts": "struct<n:bigint>"})
    workspace.close()


def test_a_new_step_is_no_change_and_a_step_that_is_away_is_remembered(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.check_schemas({"words": "struct<word:string>"})
    first.close()
    second = opened(tmp_path)
    second.check_schemas({"lengths": "struct<n:bigint>"})
    with pytest.raises(InvalidInput, match="'words'"):
        second.check_schemas({"words": "struct<n:bigint>"})
    second.close()


def test_batches_are_told_apart_by_run_and_step(tmp_path: Path) -> None:
    """A folder that was deleted and made again, as by --fresh, is another run in the same place."""

    def writers() -> set[str]:
        workspace = opened(tmp_path / "run")
        found = {workspace.writer("all"), workspace.writer("others")}
        workspace.close()
        return found

    first = writers()
    assert writers() == first, "the same run goes on"
    shutil.rmtree(tmp_path / "run")
    assert len(first | writers()) == 4


@pytest.mark.parametrize("text", ["", "{", "nonsense"])
def test_a_file_that_is_not_elastreams(tmp_path: Path, text: str) -> None:
    (tmp_path / "pipeline.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"pipeline.json: not a file of elastream's"):
        opened(tmp_path)
    (tmp_path / "pipeline.json").unlink()
    opened(tmp_path).close()  # it was not left locked


# --- batches ----------------------------------------------------------------------------------------------------


def test_a_batch_has_an_id_that_no_batch_of_another_folder_has(tmp_path: Path) -> None:
    first, other = opened(tmp_path / "first"), opened(tmp_path / "other")
    told = first.unique_id(0)
    assert other.unique_id(0) != told
    first.close()
    again = opened(tmp_path / "first")
    assert again.unique_id(0) == told, "a batch that is run again has the same"
    again.close()
    shutil.rmtree(tmp_path / "first")
    anew = opened(tmp_path / "first")
    assert anew.unique_id(0) != told, "as after --fresh"
    anew.close()
    other.close()


def test_state_is_not_looked_for_elsewhere_than_where_it_lies(tmp_path: Path) -> None:
    first = Workspace(tmp_path / "far", "wordcount", state_url="hdfs:///state")
    first.open()
    first.check_schemas({"words": "struct<word:string>"})
    first.close()
    lies = f"{tmp_path / 'far'}: its state lies in hdfs:///state, and cannot go on in the folder itself"
    with pytest.raises(InvalidInput, match=lies):
        opened(tmp_path / "far")
    Workspace(tmp_path / "far", "wordcount", state_url="hdfs:///state").open()

    near = opened(tmp_path / "near")
    near.check_schemas({"words": "struct<word:string>"})
    near.close()
    with pytest.raises(InvalidInput, match="in the folder itself, and cannot go on in hdfs:///state; choose"):
        Workspace(tmp_path / "near", "wordcount", state_url="hdfs:///state").open()


@pytest.mark.parametrize("text", ["/user/me/state", "hdfs:/state", "hdfs://host", "viewfs://a/b", "hdfs://h/a b"])
def test_a_folder_for_state_has_a_scheme(text: str) -> None:
    with pytest.raises(InvalidInput, match="a folder with the scheme of its file system was expected"):
        state_url(text)


def test_a_folder_for_state_is_taken_as_it_is_but_for_a_slash_at_its_end() -> None:
    assert state_url("hdfs://name:8020/user/me/") == "hdfs://name:8020/user/me"
