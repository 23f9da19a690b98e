"""A local folder where the default file system is HDFS: used as what it is, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hdfs_story
import pytest
from hadoop import Hadoop, hadoop_jars
from hdfs_story import FILES, NUMBERS_PER_FILE

from tests.needed import need_jars


@pytest.fixture
def hadoop(tmp_path: Path) -> Iterator[Hadoop]:
    need_jars(hadoop_jars(), "Hadoop")
    with Hadoop(tmp_path / "hadoop") as hadoop:
        yield hadoop
        assert hadoop.ended() == []


def test_every_record_is_there_once_and_nothing_is_published_that_is_not_there(
    hadoop: Hadoop, tmp_path: Path
) -> None:
    folder = tmp_path / "pipeline"
    folder.mkdir()
    ending = hdfs_story.tell(folder, hadoop)

    assert "the driver and Spark's own process do not see the same folder there" in ending.refused
    assert ending.on_hdfs_by_mistake > 0, "without a scheme Spark writes to HDFS"
    assert "numbers: batch 0 has 50 records, and 0 are found where it was written" in ending.failed
    assert ending.published_meanwhile == 0
    assert ending.retried == "100 of 100"

    assert 0 < ending.counted_when_killed < FILES * NUMBERS_PER_FILE * 2 // 3
    assert ending.faults == [], "also of what was read while paths had no scheme"
    assert ending.on_hdfs_since == []
