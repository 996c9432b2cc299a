"""Who is let in."""

import pytest

from seq2see.errors import SettingError
from seq2see.serve.limits import Keys, Rates, RefusedError, host_names


def test_keys():
    keys = Keys(["one", "zwei"])
    keys.check("one")
    keys.check("zwei")
    for wrong, status in ((None, 401), ("", 401), ("on", 403), ("one ", 403), ("\ud800", 403), ("x" * 10_000, 403)):
        with pytest.raises(RefusedError) as refused:
            keys.check(wrong)
        assert refused.value.status == status


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


def test_what_editors_and_headers_do_to_keys(tmp_path):
    path = tmp_path / "keys"
    path.write_bytes("\ufeffone\r\n  # an indented comment\n\t#another\nschlüssel\n열쇠\n".encode())
    keys = Keys.read(path)
    sent = ["one", "schlüssel", "열쇠"]  # as in JSON
    sent += ["schlüssel".encode().decode("latin-1"), "열쇠".encode().decode("latin-1")]  # UTF-8 in a header
    for key in sent:
        keys.check(key)
    for wrong in ("# an indented comment", "#another", "\ufeffone", "schlussel", "\ufeff"):
        with pytest.raises(RefusedError):
            keys.check(wrong)


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


@pytest.mark.parametrize("wrong", ["https://example.org", "example.org:80", "example.org/x", "", "-", "a b", "*.a"])
def test_what_is_no_host_name_is_refused(wrong):
    with pytest.raises(SettingError, match="--allow-host"):
        host_names([wrong])
