"""Who is let in."""

import pytest

from seq2see.errors import SettingError
from seq2see.serve.limits import Keys, Origins, Rates, RefusedError, host_names


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
    Rates(0).check("a")


LOCAL = {"localhost", "127.0.0.1", "[::1]"}


@pytest.mark.parametrize(
    ("host", "origin", "allowed", "fine"),
    [
        ("localhost:8000", "", [], True),
        ("LOCALHOST", "http://localhost", [], True),
        ("[::1]:8000", "http://[::1]:8000", [], True),
        ("127.0.0.1:8000", "http://localhost:8000", [], False),
        ("127.0.0.1:8000", "http://127.0.0.1:9000", [], False),
        ("evil.example:8000", "http://evil.example:8000", [], False),
        ("localhost.evil.example", "", [], False),
        ("evil.example:8000:8000", "", [], False),
        ("localhost", "null", [], False),
        ("localhost", "null", ["*"], True),
        ("localhost", "https://Example.org", ["https://example.org/"], True),
        ("localhost", "https://example.org:444", ["https://example.org"], False),
        ("example.org", "https://example.org", ["https://example.org"], True),
        ("anything", "https://example.org", ["*"], True),
        ("", "", [], True),
        ("\xff", "\xff", [], False),
    ],
)
def test_browsers_are_let_in_by_host_and_origin(host, origin, allowed, fine):
    headers = {b"host": host.encode("latin-1"), b"origin": origin.encode("latin-1")}
    origins = Origins(allowed, LOCAL)
    if fine:
        origins.check("POST", headers)
        return
    with pytest.raises(RefusedError) as refused:
        origins.check("POST", headers)
    assert refused.value.status == 403


@pytest.mark.parametrize(
    ("host", "fine"),
    [
        ("192.0.2.1:8000", True),
        ("[2001:db8::1]:8000", True),
        ("[2001:db8::1]", True),
        ("localhost", True),
        ("Here.:8000", True),
        ("translate.example.org", True),
        ("evil.example", False),
        ("192.0.2.1.evil.example", False),
        ("[evil.example]", False),
        ("2001:db8::1", False),
        ("1", False),
        ("translate.example.org.evil.example", False),
    ],
)
def test_by_addresses_and_known_names_only(host, fine):
    origins = Origins((), {"localhost", "here", *host_names(["Translate.Example.org."])}, addresses=True)
    if fine:
        origins.check("GET", {b"host": host.encode()})
        return
    with pytest.raises(RefusedError, match="--allow-host") as refused:
        origins.check("GET", {b"host": host.encode()})
    assert refused.value.status == 403


@pytest.mark.parametrize("wrong", ["https://example.org", "example.org:80", "example.org/x", "", "-", "a b", "*.a"])
def test_what_is_no_host_name_is_refused(wrong):
    with pytest.raises(SettingError, match="--allow-host"):
        host_names([wrong])


def test_what_is_no_origin_is_refused():
    for wrong in ("example.org", "https://", "https://example.org/path", ""):
        with pytest.raises(SettingError, match="--allow-origin"):
            Origins([wrong])
