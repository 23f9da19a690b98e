"""Which kind of channel lies in a folder, and that a pipeline stays with the kind that it began with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.kafka import KafkaChannel, segments_between
from elastream.engines.spark.channels.kinds import Files, Kafka, check_kind, kind_of, open_channel
from elastream.engines.spark.channels.segments import Segment
from elastream.engines.spark.options import ChannelOptions
from elastream.engines.spark.workspace import Workspace
from elastream.errors import InvalidInput

KAFKA = Kafka(servers="localhost:1")  # nobody is asked


def test_a_folder_is_enough_to_open_a_channel(tmp_path: Path) -> None:
    made = KAFKA.channel(tmp_path / "words", "word count")
    found = open_channel(tmp_path / "words")
    assert isinstance(made, KafkaChannel)
    assert isinstance(found, KafkaChannel)
    assert found.topic == made.topic
    assert found.topic.name.startswith("elastream-word_count-words-")
    assert isinstance(open_channel(tmp_path / "others"), FileChannel)


def test_a_topic_is_found_again_and_a_fresh_folder_has_another(tmp_path: Path) -> None:
    topics = [KAFKA.channel(tmp_path / folder / "words", "p").topic.name for folder in ("a", "a", "b")]  # type: ignore[attr-defined]
    assert topics[0] == topics[1] != topics[2]


def test_servers_that_have_moved(tmp_path: Path) -> None:
    first = KAFKA.channel(tmp_path / "words", "p")
    Kafka(servers="elsewhere:2").channel(tmp_path / "words", "p")
    found = open_channel(tmp_path / "words")
    assert isinstance(first, KafkaChannel)
    assert isinstance(found, KafkaChannel)
    assert found.topic.servers == "elsewhere:2"
    assert found.topic.name == first.topic.name


@pytest.mark.parametrize(("began", "goes_on"), [(KAFKA, Files()), (Files(), KAFKA)])
def test_a_pipeline_stays_with_its_kind(tmp_path: Path, began: Files | Kafka, goes_on: Files | Kafka) -> None:
    first = Workspace(tmp_path, "p", began)
    first.open()
    first.channel("words").log.make_folders()
    first.close()
    other = Workspace(tmp_path, "p", goes_on)
    with pytest.raises(InvalidInput, match=f"began with channels of the kind '{began.name}', and cannot go on"):
        other.open()
    first.open()  # nothing was left locked
    first.close()


def test_the_kinds_of_the_command() -> None:
    assert kind_of(ChannelOptions(kind="files", kafka_servers="a:1")) == Files()
    assert kind_of(ChannelOptions(kind="kafka", kafka_servers="a:1")) == Kafka(servers="a:1")
    with pytest.raises(InvalidInput, match=r"unknown kind of channels 'kafak' \(did you mean 'kafka'\?\)"):
        kind_of(ChannelOptions(kind="kafak"))
    with pytest.raises(InvalidInput, match="--channels kafka: unknown option 'speed'"):
        kind_of(ChannelOptions(kind="kafka", settings={"speed": "2"}))


@pytest.mark.parametrize("text", ["", "[]", json.dumps({"kind": "pulsar"})])
def test_a_file_that_is_not_elastreams(tmp_path: Path, text: str) -> None:
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "channel.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"channel.json: not a file of elastream's"):
        check_kind(tmp_path, KAFKA)


def test_what_was_put_into_the_partitions_in_between() -> None:
    assert segments_between({0: 5, 1: 7, 2: 0}, {0: 9, 1: 7, 2: 2}) == [
        Segment(path="0", first=5, records=4),
        Segment(path="2", first=0, records=2),
    ]
