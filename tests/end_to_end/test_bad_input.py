"""The user's mistakes: one clear line, exit code 2, and nothing lost."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from quick import QUICK, SETTINGS

GOOD = "".join(f"{number}\t{number}\n" for number in range(30))


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(trained: Path) -> Path:
    """The shared run: not to be changed."""
    return trained


@pytest.fixture
def own_run(trained: Path, tmp_path: Path) -> Path:
    """A copy of it that may be changed."""
    return Path(shutil.copytree(trained, tmp_path / "mine"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def refusal(ended, *words: str, after_progress: bool = False) -> str:
    """The one line, having checked that it is one, that it came with exit code 2, and that it has these words."""
    assert ended.code == 2, ended
    *progress, line, rest = ended.err.split("\n")
    assert rest == ""
    assert line.startswith("seq2see: ")
    assert "Traceback" not in ended.err
    assert after_progress or progress == []
    assert not any(each.startswith("seq2see: ") for each in progress)
    assert ended.out == ""
    for word in words:
        assert word in line
    return line


def next_try_trains(cli, out: str = "run") -> None:
    """The same --out works at once, without --force or --resume: the failure left nothing in the way."""
    Path("good.tsv").write_text(GOOD)
    ended = cli("train", "good.tsv", "--out", out, *QUICK)
    assert ended.code == 0, ended.err


# Corpora


@pytest.mark.parametrize("name", ["none.tsv", "none.jsonl.gz", "folder/none.csv"])
def test_a_missing_file(cli, name: str) -> None:
    refusal(cli("train", name, "--out", "run"), name, "no such file or corpus")
    assert not Path("run").exists()


def test_one_of_two_parallel_files_is_missing(cli) -> None:
    Path("a.en").write_text("x\n")
    refusal(cli("train", "a.en,a.ko", "--out", "run"), "a.ko: no such file")


def test_an_unknown_corpus_gets_the_nearest(cli, run: Path) -> None:
    refusal(cli("train", "daets", "--out", "run"), "daets: no such file or corpus. Did you mean 'dates'?")
    refusal(cli("evaluate", run, "daets"), "Did you mean 'dates'?")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a\tb\nonly one\nc\td\n", ["bad.tsv, line 2: 1 column, expected 2 (source<TAB>target)"]),
        ("a,b\nc,d\n", ["bad.tsv, lines 1 and 2: 1 column", "Is the file comma-separated?"]),
        ("a\tb\nc\td\te\n", ["bad.tsv, line 2: 3 columns, expected 2"]),
        ("a\tb\none\nc\td\te\n", ["line 2: 1 column", "line 3: 3 columns"]),
        (b"a\tb\nc\xff\td\n", ["bad.tsv, line 2: not UTF-8"]),
        ("a\tb\n".encode("utf-16"), ["bad.tsv, line 1: UTF-16, expected UTF-8"]),
        ("", ["no usable pair"]),
        ("\n\n\n", ["no usable pair"]),
        ("a\t\n\tb\n \t \n", ["no usable pair"]),
    ],
)
def test_a_corpus_that_cannot_be_used(cli, content: str | bytes, words: list[str]) -> None:
    Path("bad.tsv").write_bytes(content if isinstance(content, bytes) else content.encode())
    line = refusal(cli("train", "bad.tsv", "--out", "run", *QUICK), *words, after_progress=True)
    assert "bad" in line
    assert not Path("run").exists()


def test_parallel_files_of_unequal_length_say_both_counts(cli) -> None:
    Path("a.en").write_text("x\n" * 1200)
    Path("a.ko").write_text("y\n" * 7)
    refusal(cli("train", "a.en,a.ko"), "a.en has 1,200 lines, a.ko has 7", after_progress=True)
    assert not Path("runs").exists()


def test_a_name_without_a_format(cli) -> None:
    Path("pairs.dat").write_text("a b\n")
    refusal(cli("train", "pairs.dat"), "pairs.dat", "--format")
    refusal(cli("train", "pairs.dat", "--format", "tvs"), "unknown format 'tvs'. Did you mean 'tsv'?")


@pytest.mark.parametrize("content", ["one column\n", "", "a\t\n"])
def test_a_bad_validation_set_leaves_nothing_in_the_way(cli, content: str) -> None:
    Path("good.tsv").write_text(GOOD)
    Path("valid.tsv").write_text(content)
    ended = cli("train", "good.tsv", "--valid", "valid.tsv", "--out", "run", *QUICK)
    refusal(ended, "valid", after_progress=True)
    next_try_trains(cli)


def test_pairs_that_are_all_too_long_leave_nothing_in_the_way(cli) -> None:
    Path("long.tsv").write_text("abcdef\tghijkl\nbcdefg\thijklm\n")
    ended = cli("train", "long.tsv", "--out", "run", *QUICK, "--set", "data.max_length=3")
    refusal(ended, "all 2 pairs are longer than data.max_length = 3", "--set data.max_length=8", after_progress=True)
    next_try_trains(cli)


def test_many_pairs_that_are_too_long_are_told_with_the_length_they_need(cli) -> None:
    long = "".join(f"{'abcdef' * 5}\t{'x' * (20 + number)}\n" for number in range(9))
    Path("some.tsv").write_text("".join(f"{'ab' * number}\t{'AB' * number}\n" for number in range(1, 8)) * 3 + long)
    ended = cli("train", "some.tsv", "--out", "run", *QUICK, "--set", "data.max_length=16")
    assert ended.code == 0
    assert "longer than data.max_length = 16 tokens. --set data.max_length=32 keeps nearly all\n" in ended.err


@pytest.mark.parametrize("count", [1, 19, 20, 21, 30])
@pytest.mark.parametrize("word", ["a", "b", "g"])
def test_every_small_corpus_has_pairs_to_train_and_to_validate_on(tmp_path: Path, count: int, word: str) -> None:
    """Whatever the texts, none of the two sides of the split may end up empty."""
    from seq2see.cli.options import parse_assignments
    from seq2see.session import train
    from seq2see.session.request import Request
    from seq2see.text.corpora import open_corpus
    from seq2see.text.rows import ReadingOptions

    path = tmp_path / "few.tsv"
    path.write_text("".join(f"{word}{number}\tx{number}\n" for number in range(count)))
    overlays = [parse_assignments(SETTINGS)]
    request = Request(
        path, tmp_path / "run", None, overlays, ReadingOptions(), False, False, False, None, lambda event: None
    )
    prepared, _ = train.make_folder(request, open_corpus(str(path)), None, None, torch.device("cpu"))
    assert len(prepared.train) >= 1
    assert len(prepared.valid) >= 1


@pytest.mark.parametrize("source", ["a", "c", "g", "two"])
def test_one_source_with_many_targets_trains(cli, source: str) -> None:
    Path("same.tsv").write_text("".join(f"{source}\t{number}\n" for number in range(25)))
    ended = cli("train", "same.tsv", "--out", "run", *QUICK)
    assert ended.code == 0, ended.err


def test_a_validation_pair_longer_than_learned_positions_reach(cli) -> None:
    Path("good.tsv").write_text(GOOD)
    Path("valid.tsv").write_text("1\t1\n" + "12345" * 20 + "\t1\n")
    words = ["--set", "model.positions=learned", "--set", "model.max_positions=20", "--set", "data.max_length=19"]
    ended = cli("train", "good.tsv", "--valid", "valid.tsv", "--out", "run", *QUICK, *words)
    assert ended.code in (0, 2), ended.err


# Settings


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("model.d_modle=8", "unknown setting 'model.d_modle'. Did you mean 'd_model'?"),
        ("modle.d_model=8", "unknown section 'modle'. Did you mean 'model'?"),
        ("model.d_model=wide", "model.d_model = 'wide': expected a whole number"),
        ("model.norm=past", "model.norm = 'past': unknown. Did you mean 'post'?"),
        ("training.max_steps=0", "training.max_steps = 0: expected at least 1"),
        ("model.dropout=nan", "model.dropout = nan"),
        ("d_model=8", "expected section.key=value"),
    ],
)
def test_an_unknown_setting_is_told_before_anything_is_read(cli, assignment: str, words: str) -> None:
    refusal(cli("train", "none.tsv", "--set", assignment), words)


def test_settings_that_contradict_each_other(cli) -> None:
    Path("good.tsv").write_text(GOOD)
    ended = cli("train", "good.tsv", "--out", "run", "--set", "model.heads=7")
    refusal(ended, "not divisible by model.heads = 7", after_progress=True)
    next_try_trains(cli)


def test_an_unknown_preset_gets_the_nearest(cli) -> None:
    Path("good.tsv").write_text(GOOD)
    refusal(
        cli("train", "good.tsv", "--preset", "paper-bass"), "unknown preset 'paper-bass'. Did you mean 'paper-base'?"
    )


def test_a_missing_or_broken_settings_file(cli) -> None:
    Path("good.tsv").write_text(GOOD)
    refusal(cli("train", "good.tsv", "--config", "none.toml"), "none.toml: no such settings file")
    Path("bad.toml").write_text("[model\n")
    refusal(cli("train", "good.tsv", "--config", "bad.toml"), "bad.toml: not TOML")
    Path("key.toml").write_text("[model]\nd_modle = 3\n")
    refusal(cli("train", "good.tsv", "--config", "key.toml"), "'model.d_modle'. Did you mean 'd_model'?")
    Path("folder").mkdir()
    refusal(cli("train", "good.tsv", "--config", "folder"), "folder")


@pytest.mark.parametrize(("width", "words"), [(65_536, ["GiB", "smaller"]), (4_000_000_000, ["at most 65,536"])])
def test_a_model_too_large_for_memory(cli, width: int, words: list[str]) -> None:
    Path("good.tsv").write_text(GOOD)
    ended = cli("train", "good.tsv", "--out", "run", "--set", f"model.d_model={width}")
    refusal(ended, *words, after_progress=True)
    next_try_trains(cli)


def test_a_seed_that_no_generator_takes(cli) -> None:
    Path("good.tsv").write_text(GOOD)
    ended = cli("train", "good.tsv", "--out", "run", *QUICK, "--set", f"training.seed={2**70}")
    refusal(ended, "training.seed", after_progress=True)


# Run folders


def test_an_existing_out_is_not_touched(cli, own_run: Path) -> None:
    before = contents(own_run)
    Path("good.tsv").write_text(GOOD)
    refusal(cli("train", "good.tsv", "--out", own_run, *QUICK), f"{own_run}: exists already", "--resume", "--force")
    assert contents(own_run) == before


def test_force_throws_an_earlier_run_away(cli, own_run: Path) -> None:
    Path("good.tsv").write_text(GOOD)
    (own_run / "checkpoints" / "old").mkdir()
    ended = cli("train", "good.tsv", "--out", own_run, "--force", *QUICK)
    assert ended.code == 0, ended.err
    assert json.loads((own_run / "manifest.json").read_text())["steps"] == 2
    assert not (own_run / "checkpoints" / "old").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["bad.tsv"],
        ["empty.tsv"],
        ["good.tsv", "--set", "model.heads=7"],
        ["good.tsv", "--set", "model.d_model=65536"],
        ["good.tsv", "--set", "data.max_length=1"],
        ["good.tsv", "--valid", "bad.tsv"],
    ],
)
def test_force_keeps_the_earlier_run_until_the_new_one_can_begin(cli, own_run: Path, words: list[str]) -> None:
    """A slip in the new corpus or its settings must not cost the old model."""
    Path("good.tsv").write_text("".join(f"{number}\t{number}\n" for number in range(100, 130)))
    Path("bad.tsv").write_text("one column\n")
    Path("empty.tsv").write_text("\n")
    model = (own_run / "model.safetensors").read_bytes()
    ended = cli("train", *words, "--out", own_run, "--force")
    refusal(ended, after_progress=True)
    assert (own_run / "model.safetensors").exists()
    assert (own_run / "model.safetensors").read_bytes() == model


@pytest.mark.parametrize("manifest", [None, "{}", '{"format": "other"}', "not json"])
@pytest.mark.parametrize("option", ["--force", "--resume"])
def test_a_folder_that_is_not_ours_is_never_deleted(cli, option: str, manifest: str | None) -> None:
    Path("good.tsv").write_text(GOOD)
    folder = Path("thesis")
    (folder / "chapters").mkdir(parents=True)
    (folder / "chapters" / "one.txt").write_text("years of work")
    if manifest is not None:
        (folder / "manifest.json").write_text(manifest)
    before = contents(folder)
    refusal(cli("train", "good.tsv", "--out", folder, option, *QUICK), "thesis")
    assert contents(folder) == before
    refusal(cli("train", "good.tsv", "--out", folder, *QUICK), "thesis: exists already")
    assert contents(folder) == before


def test_an_empty_folder_is_as_good_as_none(cli) -> None:
    Path("run").mkdir()
    next_try_trains(cli)


def test_a_file_in_the_way(cli) -> None:
    Path("good.tsv").write_text(GOOD)
    Path("run").write_text("mine")
    for option in ([], ["--force"], ["--resume"]):
        refusal(cli("train", "good.tsv", "--out", "run", *option), "run: is a file")
    refusal(cli("train", "good.tsv", "--out", "run/inside", *QUICK), "run", after_progress=True)
    assert Path("run").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(cli) -> None:
    Path("good.tsv").write_text(GOOD)
    Path("locked").mkdir()
    Path("locked").chmod(0o555)
    refusal(cli("train", "good.tsv", "--out", "locked/run"), "locked/run: not writable", after_progress=True)


VERBS = {
    "translate": [],
    "chat": [],
    "evaluate": ["dates"],
    "look": ["a sentence"],
}


def test_a_run_folder_that_cannot_be_made(cli) -> None:
    Path("good.tsv").write_text(GOOD)
    ended = cli("train", "good.tsv", "--out", "/proc/x")
    assert ended.err.splitlines()[-1].endswith("then repeat the command, or choose another --out: nothing was saved")


def test_validation_pairs_without_text_are_named(cli) -> None:
    Path("good.tsv").write_text(GOOD)
    Path("blank.tsv").write_text("\n\n")
    ended = cli("train", "good.tsv", "--valid", "blank.tsv")
    assert "seq2see: blank.tsv: no usable pair to validate on" in ended.err


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_refuses_what_is_no_run(cli, verb: str) -> None:
    refusal(cli(verb, "none", *VERBS[verb]), "none: no such run folder. Train one with: seq2see train")
    Path("foreign").mkdir()
    refusal(cli(verb, "foreign", *VERBS[verb]), "foreign: not a run folder, or half written")
    Path("foreign", "manifest.json").write_text('{"architectures": ["MarianMTModel"]}')
    refusal(cli(verb, "foreign", *VERBS[verb]), "foreign: not a run folder of seq2see")
    Path("file").write_text("")
    refusal(cli(verb, "file", *VERBS[verb]), "file: a file, not a run folder")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("settings.toml", "the settings cannot be read"),
        ("source.tokenizer.json", "no such tokenizer file"),
        ("model.safetensors", "model.safetensors: is missing"),
    ],
)
def test_a_half_written_run(cli, own_run: Path, name: str, words: str) -> None:
    (own_run / name).unlink()
    refusal(cli("translate", own_run, stdin=b"ab\n"), words, str(own_run))


def test_a_run_cut_short_while_it_was_copied(cli, own_run: Path) -> None:
    path = own_run / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])
    refusal(cli("translate", own_run, stdin=b"ab\n"), f"{path}: cannot be read", "cut short")


def test_a_run_of_a_newer_release(cli, own_run: Path) -> None:
    path = own_run / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 99}))
    refusal(cli("translate", own_run, stdin=b"ab\n"), "run format 99", "Upgrade seq2see")


# Translating


def lines_of(text: str) -> list[str]:
    """As `wc -l` counts them."""
    *lines, rest = text.split("\n")
    assert rest == ""
    return lines


def test_one_line_out_for_every_line_in(cli, run: Path) -> None:
    lines = [
        "ab",
        "",
        "   ",
        "abcdefgh" * 1000,
        "안녕 😀",
        "a\u2028b\u2029c",
        "a\rb",
        "a\0b",
        "a\x85b\x0bc\x0cd\x1cd",
        "h",
        "",
    ]
    ended = cli("translate", run, "--beam", "1", stdin=("\n".join(lines) + "\n").encode())
    assert ended.code == 0, ended.err
    found = lines_of(ended.out)
    assert len(found) == len(lines)
    assert (found[0], found[1], found[2], found[9], found[10]) == ("AB", "", "", "H", "")
    assert lines_of(ended.err) == [
        "line 4: longer than decoding.max_source = 1024 tokens, the rest was cut",
        "line 5: all of its tokens are unknown to the model, so the translation is a guess",
        "line 6: has text that the model does not know: U+2028 U+2029; 4 lines have such text",
    ]


def test_a_last_line_without_an_end_and_windows_line_ends(cli, run: Path) -> None:
    assert cli("translate", run, stdin=b"ab\r\nh").out == "AB\nH\n"
    assert cli("translate", run, stdin=b"").out == ""
    assert cli("translate", run, stdin=b"\n").out == "\n"
    assert cli("translate", run, stdin="\ufeffab\nh\n".encode()).out == "AB\nH\n"  # with a byte order mark


def test_a_target_with_line_separators_still_takes_one_line(cli) -> None:
    """What was learned comes out again, but for line feeds none of it may end a line."""
    pairs = [{"source": letter, "target": "x\ny\u2028z"} for letter in "abcdefghijklmnopqrstuvwxyz"]
    Path("odd.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    words = ["--set", "training.max_steps=60", "--set", "training.learning_rate=2e-2", "--set", "model.dropout=0"]
    assert cli("train", "odd.jsonl", "--out", "odd", *QUICK, *words).code == 0
    found = lines_of(cli("translate", "odd", stdin=b"a\nb\n").out)
    assert len(found) == 2
    assert "x y" in found[0]
    nbest = lines_of(cli("translate", "odd", "--n-best", "2", stdin=b"a\nb\n").out)
    assert [line.split("\t")[0] for line in nbest] == ["1", "1", "2", "2"]
    assert all(json.loads(line) for line in lines_of(cli("translate", "odd", "--json", stdin=b"a\nb\n").out))


def test_n_best_lines_name_the_line_they_belong_to(cli, run: Path) -> None:
    ended = cli("translate", run, "--n-best", "3", stdin=b"ab\n\nh\n")
    rows = [line.split("\t") for line in lines_of(ended.out)]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] + ["3"] * 3
    assert rows[0][2] == "AB"
    assert rows[4][2] == "H"
    assert float(rows[0][1]) >= float(rows[1][1]) >= float(rows[2][1])


def test_json_lines(cli, run: Path) -> None:
    ended = cli("translate", run, "--json", "--n-best", "2", stdin="ab\n\n안녕\n".encode())
    rows = [json.loads(line) for line in lines_of(ended.out)]
    assert [row["source"] for row in rows] == ["ab", "", "안녕"]
    assert rows[0]["translations"][0]["text"] == "AB"
    assert len(rows[0]["translations"]) == 2
    assert rows[0]["translations"][0]["score"] >= rows[0]["translations"][1]["score"]
    assert rows[1]["translations"] == [{"text": "", "score": 0.0, "probability": 1.0}]


def test_bytes_that_are_not_utf_8_on_standard_input(cli, run: Path) -> None:
    ended = cli("translate", run, stdin=b"ab\nab\xff\nh\n")
    assert (ended.code, ended.out) == (2, "AB\n")  # what came before is not lost
    assert ended.err.splitlines() == [
        "seq2see: standard input, line 2: not UTF-8. It is probably CP1252. Convert it: iconv -f CP1252 -t UTF-8"
    ]


def test_bytes_that_are_not_utf_8_in_a_chat(cli, run: Path) -> None:
    refusal(cli("chat", run, stdin=b"\xffab\n"), "not UTF-8")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["translate", "RUN", "--beam", "0"], "--beam"),
        (["translate", "RUN", "--beam", "many"], "--beam"),
        (["translate", "RUN", "--n-best", "0"], "--n-best"),
        (["translate", "RUN", "--sample", "--temperature", "0"], "--temperature"),
        (["translate", "RUN", "--sample", "--top-p", "2"], "--top-p"),
        (["translate", "RUN", "--temperature", "5"], "--temperature: only with --sample"),
        (["translate", "RUN", "--top-k", "3", "--seed", "4"], "--top-k, --seed: only with --sample"),
        (["chat", "RUN", "--top-p", "0.5"], "--top-p: only with --sample"),
        (["translate", "RUN", "--wrong"], "--wrong"),
        (["translate", "RUN", "--engine", "ctranslate"], "Did you mean 'ctranslate2'?"),
        (["translate", "RUN", "--sample", "--n-best", "3"], "--n-best"),
        (["translate", "RUN", "--sample", "--engine", "ctranslate2"], "--sample needs the torch engine"),
        (["chat", "RUN", "--sample", "--engine", "ctranslate2"], "--sample needs the torch engine"),
        (["chat", "RUN", "--sample", "--precision", "int4"], "--precision int4: unknown. Did you mean 'int8'?"),
        (["translate"], "RUN"),
        (["transalte", "RUN"], "transalte"),
        (["data", "lst"], "lst"),
        (["evaluate", "RUN"], "PAIRS"),
        (["evaluate", "RUN", "none.tsv"], "none.tsv: no such file"),
        (["evaluate", "RUN", "blank.tsv"], "blank.tsv: no usable pair"),
        (["train", "good.tsv", "--valid=-5"], "--valid -5: expected"),
        (["train", "good.tsv", "--metric", "wer"], "Did you mean 'ter'? Choose from: bleu, chrf, error_rate, exact"),
        (["train", "good.tsv", "--bogus"], "No such option: --bogus See: seq2see train --help"),
        (["train", "good.tsv", "--metrc", "exact"], "--metric"),
        (["evaluate", "RUN", "good.tsv", "--tokenize", "mecab"], "mecab"),
        (["evaluate", "RUN", "two.txt,two.txt", "--source-column", "2"], "two.txt,two.txt: no columns to choose from"),
        (["evaluate", "RUN", "RUN"], "a folder"),
        (["evaluate", "RUN", "good.tsv", "--against", "none"], "none: no such run folder"),
        (["evaluate", "RUN", "none", "good.tsv"], "none: no such run folder"),
        (["evaluate", "RUN", "good.tsv", "--references", "none"], "none: no such file"),
        (["evaluate", "RUN", "good.tsv", "--references", "blank.tsv", "--references", "two.txt"], "two.txt: 2 lines"),
        (["evaluate", "RUN", "good.tsv", "-o", "x.txt", "--against", "RUN"], "--output holds the translations of one"),
        (["evaluate", "RUN", "good.tsv", "-o", "none/x.txt"], "there is no folder none"),
        (["evaluate", "RUN", "good.tsv", "-o", "."], "a folder"),
        (["train", "good.tsv", "--metric", "exat"], "Did you mean 'exact'?"),
        (["look", "RUN", "ab", "--place", "corss"], "Did you mean 'cross'?"),
        (["look", "RUN", "ab", "--layer", "9"], "--layer 9: for pictures only"),
        (["look", "RUN", "ab", "--layer", "9", "-o", "x.png"], "--layer 9: the layers are numbered from 1 to 1"),
        (["look", "RUN", "ab", "--layer", "-1", "-o", "x.png"], "--layer -1: layers are counted from 1"),
        (["look", "RUN", "ab", "--layer", "1", "--picture", "heads"], "--layer 1: does not apply to"),
        (["look", "RUN", "ab", "--place", "cross", "--picture", "beam"], "--place cross: does not apply to"),
        (["look", "RUN", "ab", "--target", "B", "--picture", "beam"], "--target there is no beam search"),
        (["look", "RUN", "ab", "-o", "x.gif"], "x.gif"),
        (["look", "RUN", "ab", "-o", "none/x.png"], "none"),
        (["look", "RUN", "  "], "empty"),
        (["look", "RUN", "ab", "--target", " "], "--target is empty"),
        (["look", "RUN", "ab", "--picture", "haeds"], "Did you mean 'heads'?"),
        (["look", "RUN", "ab", "--json", "-o", "x.html"], "--json"),
        (["look", "RUN", "ab", "--json", "--layer", "1"], "--json"),
        (["look", "RUN", "abcdefgh" * 20], "at most 128 can be shown. Shorten it, or draw a picture: -o FILE.png"),
    ],
)
def test_a_slip_on_the_command_line(cli, run: Path, words: list[str], hint: str) -> None:
    Path("good.tsv").write_text("ab\tAB\n")
    Path("blank.tsv").write_text("\n")
    Path("two.txt").write_text("a\nb\n")
    refusal(cli(*[run if word == "RUN" else word for word in words]), hint)


def test_no_picture_is_advised_for_two_runs(cli, run: Path) -> None:
    line = refusal(cli("look", run, "abcdefgh" * 20, "--beside", run), "at most 128 can be shown. Shorten it")
    assert "FILE.png" not in line


def test_debug_shows_the_trace() -> None:
    words = [sys.executable, "-m", "seq2see", "train", "none.tsv", "--set", "model.x=1"]
    plain = subprocess.run(words, capture_output=True, text=True, check=False)
    assert plain.returncode == 2
    assert plain.stderr.startswith("seq2see: unknown setting 'model.x'.")
    shown = subprocess.run([*words, "--debug"], capture_output=True, text=True, check=False)
    assert shown.returncode != 0
    assert shown.stderr.startswith("Traceback (most recent call last):")
    assert "SettingError: unknown setting 'model.x'." in shown.stderr


def test_a_reader_that_has_seen_enough() -> None:
    """`seq2see data list --json | head -c 1`: no complaint, exit code 0."""
    words = [sys.executable, "-m", "seq2see", "data", "list"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.close()
        assert program.stderr.read() == b""
        assert program.wait(timeout=300) == 0


def test_a_reader_of_translations_that_has_seen_enough(run: Path) -> None:
    """`seq2see translate RUN | head -1`."""
    words = [sys.executable, "-m", "seq2see", "translate", str(run), "--beam", "1"]
    Path("lines.txt").write_text("ab\nh\n" * 2100)
    with (
        Path("lines.txt").open("rb") as lines,
        subprocess.Popen(words, stdin=lines, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program,
    ):
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline() == b"AB\n"
        program.stdout.close()
        assert program.stderr.read() == b""
        assert program.wait(timeout=300) == 0


# Help


def test_every_help_page_ends_with_an_example(cli) -> None:
    import typer

    from seq2see.cli import program

    whole = typer.main.get_command(program.program())
    pages = [[], *([name] for name in whole.commands)]  # type: ignore[attr-defined]
    for name, verb in whole.commands.items():  # type: ignore[attr-defined]
        pages += [[name, each] for each in getattr(verb, "commands", ())]
    assert ["draw", "heads"] in pages
    assert {"train", "translate", "chat", "evaluate", "look", "data"} <= {page[0] for page in pages if page}
    for page in pages:
        for option in ("--help", "-h"):
            ended = cli(*page, option)
            assert ended.code == 0
            assert ended.err == ""
            *_, last = ended.out.strip().split("\n")
            assert last.strip().startswith("Example: "), ended.out
            assert f"seq2see {page[0]}" in last if page else "seq2see" in last


def test_no_verb_shows_the_help(cli) -> None:
    ended = cli()
    assert ended.code == 0
    assert "Usage: " in ended.out


def test_help_comes_without_torch() -> None:
    """What is slow to import waits until it is needed."""
    code = """
import sys
from seq2see.cli.program import main
sys.argv = ["seq2see", "train", "--help"]
try:
    main()
except SystemExit:
    print([name for name in ("torch", "numpy", "sentencepiece", "matplotlib", "rich") if name in sys.modules])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.rstrip().split("\n")[-1] == "[]"


def test_the_run_may_be_this_very_folder_or_a_link(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("good.tsv").write_text(GOOD)
    good = Path("good.tsv").resolve()
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "link").symlink_to(here)
    assert cli("train", good, "--out", tmp_path / "link", *QUICK).code == 0
    assert (here / "model.safetensors").exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    assert cli("train", good, "--out", ".", *QUICK).code == 0


@pytest.mark.parametrize("variables", [{"WORLD_SIZE": "two"}, {"WORLD_SIZE": "2"}, {"WORLD_SIZE": "2", "RANK": "1"}])
def test_half_of_what_torchrun_says(cli, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    Path("good.tsv").write_text(GOOD)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ended = cli("train", "good.tsv", "--out", "run", *QUICK)
    if variables.get("RANK") == "1":
        assert (ended.code, ended.err) == (2, "")  # the first process says it
    else:
        refusal(ended, "torchrun")


def test_a_document_is_translated_by_one_process(cli, own_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    refusal(cli("translate", own_run, "--text", stdin=b"a text\n"), "--text runs in one process")


def test_a_run_goes_on_with_its_own_corpus_only(cli, own_run: Path) -> None:
    Path("other.tsv").write_text(GOOD)
    refusal(cli("train", "other.tsv", "--out", own_run, "--resume"), "cannot be resumed with 'other'")
    refusal(cli("train", "other.tsv", "--out", own_run, "--resume", "--force"), "choose one")


def cut_by(run: Path, expression: str) -> None:
    """Have the sources and targets of a run be cut by an expression."""
    for path in run.glob("*.tokenizer.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"kind": "pattern", "pattern": expression}))


@pytest.mark.parametrize("expression", [r"(a+)\1*\1*\1*\1*b", "(?:[a-z]+)+!"])
def test_a_pattern_that_takes_too_long_is_one_line(own_run: Path, cli, expression: str) -> None:
    cut_by(own_run, expression)
    evil = b"a" * 5000
    refusal(cli("translate", own_run, stdin=evil + b"\n"), "pattern", "takes longer than", "5,000 characters")
    refusal(cli("look", own_run, evil.decode()), "takes longer than")
    Path("pairs.tsv").write_bytes(evil + b"\t" + evil + b"\n")
    refusal(cli("evaluate", own_run, "pairs.tsv"), "takes longer than", after_progress=True)


@pytest.mark.parametrize("words", [["--beam", "1000000"], ["--n-best", "1000000"], ["--beam", "9" * 400]])
def test_a_beam_that_no_machine_holds(run: Path, cli, words: list[str]) -> None:
    ended = cli("translate", run, *words, stdin=b"a\n")
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert "expected at most 200" in ended.err


@pytest.mark.parametrize(
    "assignment", ["model.encoder_layers=100000000", "decoding.beam=1000000", f"model.d_model={'9' * 5000}"]
)
def test_settings_without_measure_are_refused_before_training(cli, assignment: str) -> None:
    Path("pairs.tsv").write_text(GOOD)
    line = refusal(cli("train", "pairs.tsv", "--out", "out", "--set", assignment), assignment.partition("=")[0])
    assert len(line) < 300
    assert not Path("out").exists()
