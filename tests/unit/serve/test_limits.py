"""Who is let in."""

import pytest

from seq2see.errors import SettingError
from seq2see.serve.limits import Keys, Rates, RefusedError


def test_keys():
    keys = Keys(["one", "zwei"])
    keys.check("one")
    keys.check("zwei")
    for wrong, status in ((None, 401), ("", 401), ("on", 403), ("one ", 403), ("\ud800", 403), ("x" * 10_000, 403)):
        with pytest.raises(RefusedError) as refused:
            keys.check(wrong)
        assert refused.value.status == status
    Keys([]).check(None)
    assert not Keys([])


def test_keys_of_a_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# a comment\n\n one \nzwei\n", encoding="utf-8")
    Keys.read(path).check("one")
    with pytest.raises(RefusedError):
        Keys.read(path).check("# a comment")
    for text in (b"", b"# nothing\n", b"\xff"):
        path.write_bytes(text)
        with pytest.raises(SettingError, match="keys"):
            Keys.read(path)


def test_rates_are_counted_for_each_client_and_refill():
    now = 100.0
    rates = Rates(2, lambda: now)
    rates.check("a")
    rates.check("a")
    rates.check("b")
    with pytest.raises(RefusedError) as refused:
        rates.check("a")
    assert refused.value.status == 429
    assert refused.value.retry_after == 31
    now += 30
    rates.check("a")
    with pytest.raises(RefusedError):
        rates.check("a")
    now += 3600  # no more than a minute's worth is saved up
    rates.check("a")
    rates.check("a")
    with pytest.raises(RefusedError):
        rates.check("a")


def test_clients_are_forgotten_in_time(monkeypatch):
    monkeypatch.setattr(Rates, "MOST_CLIENTS", 3)
    rates = Rates(1, lambda: 0.0)
    for client in "abcd":
        rates.check(client)
    with pytest.raises(RefusedError):
        rates.check("d")
    rates.check("a")
    Rates(0).check("a")
