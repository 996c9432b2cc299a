"""`seq2see translate --text`: documents instead of lines."""

import json


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
        (["--n-best", "2"], b"x", "--text: leave"),
        ([], b"a\n\xff", "standard input, line 2: not UTF-8"),
    ]:
        ended = cli("translate", trained, "--text", *words, stdin=data)
        assert ended.code == 2
        assert expected in ended.err
        assert ended.err.splitlines()[-1].startswith("seq2see: ")
