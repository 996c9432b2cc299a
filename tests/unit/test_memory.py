"""How much memory is free, as Linux and its containers tell."""

from pathlib import Path

import pytest

from seq2see import memory


def container(folder: Path, limit: str, used: int, cached: int) -> tuple[Path, str, str]:
    folder.mkdir()
    (folder / "limit").write_text(f"{limit}\n")
    (folder / "used").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 7\nactive_file {cached}\ninactive_file 1\n")
    return folder, "limit", "used"


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CONTAINERS", [])
    everything = memory.free()
    assert everything > 2**20
    monkeypatch.setattr(memory, "CONTAINERS", [container(tmp_path / "small", "100000", 60_000, 9_999)])
    assert memory.free() == 50_000
    monkeypatch.setattr(memory, "CONTAINERS", [container(tmp_path / "over", "1000", 60_000, 0)])
    assert memory.free() == 0
    unlimited = [container(tmp_path / "unlimited", "max", 60_000, 0), (tmp_path / "none", "limit", "used")]
    monkeypatch.setattr(memory, "CONTAINERS", unlimited)
    assert memory.free() > 2**20
