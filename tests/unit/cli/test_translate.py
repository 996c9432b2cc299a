"""`seq2see translate --text`: documents instead of lines."""

import json

from seq2see.cli import translate


def test_markup_and_blanks_are_kept(cli, trained):
    ended = cli("translate", trained, "--text", "--engine", "torch", stdin=b"<p>abc <b>fed</b></p>\n\n<hr>  ")
    assert ended.code == 0
    assert ended.out.startswith("<p>")
    assert ended.out.endswith("</p>\n\n<hr>  ")
    assert ended.out.count("<b>") == ended.out.count("</b>") == 1


def test_json_has_the_text_and_the_counts(cli, trained):
    ended = cli("translate", trained, "--text", "--markup", "plain", "--json", stdin=b"abc\n\nabc\n")
    said = json.loads(ended.out)
    assert said["text"] == "ABC\n\nABC\n"
    assert (said["counts"]["sentences"], said["counts"]["different"]) == (2, 1)


def test_mistakes_are_refused_in_one_line(cli, trained):
    for words, data, expected in [
        (["--markup", "htm"], b"x", "--markup htm: unknown"),
        (["--n-best", "2"], b"x", "--text cannot be combined with"),
        ([], b"a\n\xff", "standard input, line 2: not UTF-8"),
    ]:
        ended = cli("translate", trained, "--text", *words, stdin=data)
        assert ended.code == 2
        assert expected in ended.err
        assert ended.err.splitlines()[-1].startswith("seq2see: ")
    ended = cli("translate", trained, "--markup", "html", stdin=b"<p>x</p>")
    assert (ended.code, ended.out) == (2, "")
    assert "--markup html: add --text" in ended.err


def test_a_cache_spares_the_search_and_changes_nothing(cli, trained, monkeypatch):
    from seq2see.decoding.torch_engine import TorchEngine

    words = ("translate", trained, "--engine", "torch", "--cache", "--n-best", "2")
    first = cli(*words, stdin=b"cab\nbad\ncab\n")
    asked = []
    monkeypatch.setattr(TorchEngine, "search", lambda self, tasks, settings: asked.append(len(tasks)) or [])
    assert cli(*words, stdin=b"bad\ncab\n").out.splitlines()[0].endswith(first.out.splitlines()[2].partition("\t")[2])
    assert asked == [0]
    assert cli("translate", trained, "--cache", "--sample", stdin=b"x").code == 2


def test_lines_with_some_unknown_text_are_told_once(cli, trained):
    said = cli("translate", trained, stdin=b"cab\nca\xc3\xa9\nbad\nc<X> <Y> <Y>\n").err.splitlines()
    assert said == ["line 2: has text that the model does not know: ca\u00e9; 2 lines have such text"]
    [line] = cli("translate", trained, stdin=b"a" + b" <X%d>" * 8 % (*range(8),)).err.splitlines()
    assert (
        line == "line 1: has text that the model does not know: <X0> <X1> <X2> <X3> <X4> and 4 more"
    )  # with the blank


def test_bytes_and_the_unknown_token_are_not_learned():
    spellings = ["<pad>", "<unk>", "<s>", "</s>", "<0x00>", "<0xFF>", "▁", "▁a", "0x00", " "]
    assert translate._unlearned(spellings) == ({6, 9}, {1, 4, 5})
