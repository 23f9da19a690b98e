"""The experiments on decentralized scaling: whole where they are quick, with fewer seeds or cases where not."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import decentralized_explorer, decentralized_scaling, fgme, frame

pytestmark = pytest.mark.slow


def report(name: str) -> frame.Report:
    return frame.find(name).run(lambda what, share: None)


def failing(found: frame.Report) -> list[frame.Check]:
    return [check for check in found.checks if not check.holds]


def test_scaling_holds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(decentralized_scaling, "SEEDS", 4)
    monkeypatch.setattr(decentralized_scaling, "_OTHER_SEEDS", 1)
    found = report("decentralized-scaling")
    assert failing(found) == []
    everybody, leader, *_ = found.data["runs"]
    assert everybody["throughput_share"] > leader["throughput_share"]
    assert all(file.stat().st_size > 0 for file in frame.write("decentralized-scaling", found, tmp_path))


def test_secure_holds_and_flapping_ends(tmp_path: Path) -> None:
    found = report("decentralized-secure")
    assert failing(found) == []
    assert found.data["with r_secure"]["delayed_records"] < 0.8 * found.data["without"]["delayed_records"]
    assert all(file.stat().st_size > 0 for file in frame.write("decentralized-secure", found, tmp_path))


def test_traffic_holds(tmp_path: Path) -> None:
    found = report("decentralized-traffic")
    assert failing(found) == []
    assert all(one["messages"] <= one["formula"] for one in found.data["rounds"])
    assert all(file.stat().st_size > 0 for file in frame.write("decentralized-traffic", found, tmp_path))


def test_fgme_holds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fgme, "_RUNS", 1)
    monkeypatch.setattr(fgme, "_OCCUPANCY_RUNS", 5)
    monkeypatch.setattr(fgme, "_INSIDE_S", (1.0,))
    monkeypatch.setattr(fgme, "_TRAFFIC", {key: fgme._TRAFFIC[key] for key in ((12, 10), (6, 10))})
    found = report("fgme")
    assert failing(found) == []
    assert all(file.stat().st_size > 0 for file in frame.write("fgme", found, tmp_path))


def test_the_explorer_tells_printed_forms_from_mended_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [case for case in decentralized_explorer.CASES if "neighbours leave" in case.name]
    assert len(few) == 2
    monkeypatch.setattr(decentralized_explorer, "CASES", few)
    found = report("decentralized-explorer")
    assert failing(found) == []
    published, mended = found.data["cases"]
    assert published["run"]
    assert mended["complete"]
