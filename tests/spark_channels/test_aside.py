"""Records that were put aside: kept whole, and left out where their batch is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastream.engines.spark.channels.aside import (
    AsideRecord,
    folder_beside,
    positions_aside,
    put_aside,
    read_aside,
)
from elastream.errors import ElastreamError


def aside(position: int, channel: str = "bids") -> AsideRecord:
    return AsideRecord(channel=channel, position=position, error="ValueError: poison", record={"bidder": position})


def test_they_are_read_as_they_were_put_aside_the_oldest_first(tmp_path: Path) -> None:
    folder = tmp_path / "aside" / "scored"
    put_aside(folder, 10, [aside(700)])
    put_aside(folder, 9, [aside(650), aside(640)])
    assert list(read_aside(folder)) == [aside(640), aside(650), aside(700)]
    assert list(read_aside(folder, batch=9)) == [aside(640), aside(650)]
    assert list(read_aside(folder, batch=8)) == []


def test_only_the_newest_batch_can_be_the_one_that_is_read(tmp_path: Path) -> None:
    put_aside(tmp_path, 9, [aside(650)])
    put_aside(tmp_path, 10, [aside(700), aside(3, channel="asks")])
    assert positions_aside(tmp_path, "bids") == (700,)
    assert positions_aside(tmp_path, "asks") == (3,)
    assert positions_aside(tmp_path / "nothing", "bids") == ()


def test_more_of_the_same_batch_come_to_those_that_are_there_and_none_is_there_twice(tmp_path: Path) -> None:
    put_aside(tmp_path, 9, [aside(650)])
    put_aside(tmp_path, 9, [aside(640), aside(650)])
    assert positions_aside(tmp_path, "bids") == (640, 650)


def test_a_torn_file_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    put_aside(tmp_path, 9, [aside(650)])
    (tmp_path / "0000000009.json").write_text("")
    with pytest.raises(ElastreamError, match="torn"):
        positions_aside(tmp_path, "bids")


def test_readers_find_the_folder_by_their_control_file() -> None:
    assert folder_beside(Path("/run/control/scored.json")) == Path("/run/aside/scored")
