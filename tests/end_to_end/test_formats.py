"""Files as people have them, through the command line: catalogues, columns, several files, languages and tags."""

import json
import random
from pathlib import Path

import pytest
from quick import QUICK

from seq2see import api, load
from seq2see.text.pair import Sides

COUNT = 40


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, rows: list[str]) -> str:
    Path(name).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return name


def numbers(prefix: str = "a") -> list[str]:
    return [f"{prefix}{number}" for number in range(COUNT)]


def manifest(folder: str) -> dict[str, object]:
    return json.loads(Path(folder, "manifest.json").read_text(encoding="utf-8"))


def po(name: str) -> str:
    header = 'msgid ""\nmsgstr "Language: ko\\n"\n'
    return write(name, [header, *(f'msgid "{each}"\nmsgstr "{each.upper()}"\n' for each in numbers())])


def tmx(name: str, *languages: str) -> str:
    def unit(text: str) -> str:
        texts = (f'<tuv xml:lang="{code}"><seg>{code} {text}</seg></tuv>' for code in languages)
        return f"<tu>{''.join(texts)}</tu>"

    return write(name, ['<tmx><header srclang="en"/><body>', *map(unit, numbers()), "</body></tmx>"])


def test_catalogues_and_languages(cli) -> None:
    ended = cli("train", po("ko.po"), *QUICK, "--source-language", "en")
    assert ended.code == 0, ended.err
    assert " en -> ko\n" in ended.err
    assert manifest("runs/ko")["languages"] == {"source": "en", "target": "ko"}
    ended = cli("evaluate", "runs/ko", tmx("test.tmx", "en", "ko"))
    assert ended.code == 0, ended.err
    assert ended.out.startswith(f"{COUNT} pairs of test.tmx")


def test_a_run_says_its_languages() -> None:
    settings = {"training": {"max_steps": 1}}
    tmx("three.tmx", "en", "de", "fr")
    run = api.train("three.tmx", "a", source_language="de", target_language="fr", settings=settings)
    assert run.languages == Sides("de", "fr")
    run = api.train(write("b.tsv", [f"{each}\t{each}" for each in numbers()]), "b", settings=settings)
    assert run.languages == Sides(None, None)
    assert run.manifest["languages"] == {"source": None, "target": None}


def test_more_than_two_languages_are_refused_in_one_line(cli) -> None:
    ended = cli("train", tmx("three.tmx", "en", "de", "fr"), *QUICK)
    assert ended.code == 2
    assert ended.err.splitlines()[-1] == (
        "seq2see: three.tmx: 3 languages, en, de, fr. Choose two, for example: "
        "--source-language en --target-language de"
    )
    assert not Path("runs").exists()


def test_columns(cli) -> None:
    write("chat.csv", ["Q,A,label", *(f"{each},{each.upper()},0" for each in numbers())])
    ended = cli("train", "chat.csv", *QUICK)
    assert ended.code == 0, ended.err
    assert "chat.csv: the source is column 'Q', the target is column 'A'\n" in ended.err
    ended = cli("evaluate", "runs/chat", "chat.csv", "--source-column", "2", "--target-column", "q")
    assert ended.code == 0, ended.err
    ended = cli("evaluate", "runs/chat", "chat.csv")
    assert ended.err == "chat.csv: the source is column 'Q', the target is column 'A'\n"
    ended = cli("evaluate", "runs/chat", "chat.csv", "--source-column", "Lable", "--target-column", "A")
    assert ended.code == 2
    assert ended.err == (
        "seq2see: chat.csv: no column 'Lable' (--source-column). Did you mean 'label'? "
        "The columns are 'Q', 'A', 'label'; their numbers count from 1\n"
    )


def test_fields_of_jsonl(cli) -> None:
    records = [{"translation": {"en": each, "de": each.upper()}} for each in numbers()]
    write("hub.jsonl", [json.dumps(record) for record in records])
    words = ["--source-column", "translation.en", "--target-column", "translation.de"]
    ended = cli("train", "hub.jsonl", *QUICK)
    assert ended.code == 2
    assert ended.err.rstrip().endswith(" ".join(words))
    ended = cli("train", "hub.jsonl", *words, *QUICK)
    assert ended.code == 0, ended.err
    assert " en -> de\n" in ended.err


def test_several_files_and_going_on_with_them(cli) -> None:
    write("one.tsv", [f"{each}\t{each}" for each in numbers("b")])
    write("two.en", numbers("c"))
    write("two.ko", numbers("d"))
    files = ["one.tsv", po("ko.po"), "two.en,two.ko"]
    ended = cli("train", *files, *QUICK)
    assert ended.code == 0, ended.err
    found = manifest("runs/one-ko-two")
    assert found["pairs"] + found["validation_pairs"] == 3 * COUNT  # type: ignore[operator]
    assert found["languages"] == {"source": None, "target": None}
    for file in ("one.tsv", "ko.po"):
        Path(file).unlink()
    ended = cli("train", *files, "--out", "runs/one-ko-two", "--resume", "--set", "training.max_steps=3")
    assert ended.code == 0, ended.err
    assert manifest("runs/one-ko-two")["steps"] == 3
    ended = cli("train", "two.en,two.ko", "--out", "runs/one-ko-two", "--resume")
    assert ended.code == 2
    assert "a run on 'one-ko-two' cannot be resumed with 'two'" in ended.err


def test_several_files_in_python() -> None:
    files = [Path(write(f"{name}.tsv", [f"{each}\t{each}" for each in numbers(name)])) for name in ("x", "y")]
    assert api.train(files, settings={"training": {"max_steps": 1}}).folder == Path("runs/x-y")


def test_a_fault_in_the_second_of_several_files(cli) -> None:
    write("good.tsv", ["a\tb"])
    write("bad.tsv", ["a\tb", "c"])
    ended = cli("train", "good.tsv", "bad.tsv", *QUICK)
    assert ended.code == 2
    fault, _, command = ended.err.splitlines()[-1].partition(". Write a copy without such rows: seq2see ")
    assert fault == "seq2see: bad.tsv, line 2: 1 column, expected 2 (source<TAB>target)"
    assert cli(*command.split()).code == 0
    assert Path("clean.tsv").read_text() == "a\tb\n"


@pytest.mark.parametrize(("valid", "low", "high"), [("50%", 420, 580), ("0.2", 140, 260), ("100", 60, 140)])
def test_a_share_or_a_number_is_held_out(cli, valid: str, low: int, high: int) -> None:
    write("x.tsv", [f"{number}\t{number}" for number in range(1000)])
    assert cli("train", "x.tsv", "--valid", valid, "--out", "run", *QUICK).code == 0
    found = manifest("run")
    assert low <= found["validation_pairs"] <= high  # type: ignore[operator]
    assert found["pairs"] + found["validation_pairs"] == 1000  # type: ignore[operator]


@pytest.mark.parametrize("valid", ["0", "0%", "100%", "1.0", "1.5", "200%", "0.0"])
def test_no_share(cli, valid: str) -> None:
    write("x.tsv", [f"{each}\t{each}" for each in numbers()])
    ended = cli("train", "x.tsv", "--valid", valid, *QUICK)
    assert ended.code == 2
    assert ended.err == f"seq2see: --valid {valid}: expected a number of pairs (500), or a share (0.02 or 2%)\n"


@pytest.mark.parametrize(("valid", "shown"), [("21", "21"), ("60%", "0.6")])
def test_more_than_half(cli, valid: str, shown: str) -> None:
    write("x.tsv", [f"{each}\t{each}" for each in numbers()])
    ended = cli("train", "x.tsv", "--valid", valid, *QUICK)
    assert ended.code == 2
    assert ended.err.splitlines()[-1].startswith(f"seq2see: --valid {shown}: at most half of the {COUNT} pairs")


def test_a_file_whose_name_is_a_number(cli) -> None:
    write("x.tsv", [f"{each}\t{each}" for each in numbers()])
    write("500", ["v\tw"])
    ended = cli("train", "x.tsv", "--valid", "./500", "--format", "tsv", "--out", "run", *QUICK)
    assert ended.code == 0, ended.err
    assert manifest("run")["validation_pairs"] == 1


@pytest.fixture(scope="module")
def tagged(once) -> Path:
    """A run that writes words large (`de`) or backwards (`fr`), as the tag asks."""
    return once("tagged", train_by_tags) / "run"


def train_by_tags(folder: Path) -> None:
    dice = random.Random(5)
    words = ["".join(dice.choices("abcdef", k=dice.randint(2, 4))) for _ in range(700)]
    for name, change in (("en", str), ("de", str.upper), ("fr", lambda word: word[::-1])):
        (folder / f"w.{name}").write_text("".join(f"{change(word)}\n" for word in words))
    settings = {
        "model": {"encoder_layers": 1, "decoder_layers": 1, "d_model": 48, "heads": 2, "d_ff": 64, "dropout": 0.0},
        "training": {"max_steps": 250, "warmup_steps": 30, "batch_tokens": 2000, "validate_every": 125},
    }
    files = [f"{folder}/w.en,{folder}/w.de", f"{folder}/w.en,{folder}/w.fr"]
    api.train(files, folder / "run", tag=True, valid=0.05, settings=settings)


@pytest.mark.parametrize("engine", ["torch", "auto"])
def test_a_tag_chooses_the_direction(cli, tagged: Path, engine: str) -> None:
    assert cli("translate", tagged, "--to", "de", "--engine", engine, stdin=b"abc\n\nfed\n").out == "ABC\n\nFED\n"
    assert cli("translate", tagged, "--to", "fr", "--engine", engine, stdin=b"abc\nfed\n").out == "cba\ndef\n"
    mixed = b"<2de> abc\n<2fr> abc\n"
    assert cli("translate", tagged, "--engine", engine, stdin=mixed).out == "ABC\ncba\n"
    assert cli("chat", tagged, "--to", "fr", "--engine", engine, stdin=b"abc\n").out == "cba\n"


def test_tags_are_recorded(tagged: Path) -> None:
    run = load(tagged)
    assert run.tags == ["de", "fr"]
    assert run.settings.data.tags == "de fr"
    assert run.languages == Sides("en", None)
    assert run.translate(["abc"], to="fr") == ["cba"]
    assert run.look("abc", to="de").source_tokens == ["<2de>", "a", "b", "c", "</s>"]
    (aligned,) = run.align(["abc"], run.search(["abc"], to="de"), to="de")
    assert [link.source for link in aligned[0].links] == [(0, 1), (1, 2), (2, 3)], "in what was typed"
    validation = (tagged / "validation.jsonl").read_text(encoding="utf-8")
    assert '"source": "<2de> ' in validation
    assert '"source": "<2fr> ' in validation


def test_heads_are_measured_in_the_right_direction(cli, tagged: Path, tmp_path: Path) -> None:
    (tmp_path / "back.tsv").write_text("abc\tcba\nfed\tdef\n", encoding="utf-8")
    ended = cli("draw", "heads", tagged, tmp_path / "back.tsv", "--to", "fr", "--json")
    assert json.loads(ended.out)["worth"]["whole"]["translations"] == ["cba", "def"]
    ended = cli("draw", "heads", tagged, "--limit", "4", "--json")  # validation pairs have their tags
    assert json.loads(ended.out)["worth"]["pairs"] == 4
    assert "choose a language with --to" in cli("draw", "heads", tagged, tmp_path / "back.tsv", "--json").err


def test_the_same_source_is_never_on_both_sides_of_the_split(tagged: Path) -> None:
    rows = [json.loads(line)["source"] for line in (tagged / "validation.jsonl").read_text().splitlines()]
    german, french = ({row[6:] for row in rows if row.startswith(tag)} for tag in ("<2de> ", "<2fr> "))
    assert german == french


def test_no_pair_is_learned_turned_round_that_is_validated_on(cli) -> None:
    write("m.en", numbers("a"))
    write("m.de", numbers("b"))
    ended = cli("train", "m.en,m.de", "m.de,m.en", "--tag", "--valid", "30%", "--out", "run", *QUICK)
    assert ended.code == 0, ended.err
    pairs = [json.loads(line) for line in Path("run/validation.jsonl").read_text().splitlines()]
    german, english = (
        {(pair["source"][6:], pair["target"]) for pair in pairs if pair["source"].startswith(tag)}
        for tag in ("<2de> ", "<2en> ")
    )
    assert german == {(target, source) for source, target in english}
    assert german


def test_evaluate_tags_by_the_file_or_by_option(cli, tagged: Path) -> None:
    write("t.en", ["abc", "fed"])
    write("t.de", ["ABC", "FED"])
    ended = cli("evaluate", tagged, "t.en,t.de", "--json")
    assert json.loads(ended.out)["scores"]["exact"]["value"] == 100, ended.out
    assert load(tagged).evaluate("t.en,t.de").scores["exact"].value == 100
    write("t.tsv", ["abc\tcba"])
    assert json.loads(cli("evaluate", tagged, "t.tsv", "--to", "fr", "--json").out)["scores"]["exact"]["value"] == 100
    ended = cli("evaluate", tagged, "t.tsv")
    assert (ended.code, ended.err) == (2, f"seq2see: {tagged} translates to de, fr: choose a language with --to\n")


def test_one_of_many_directions_against_one_of_one(cli, tagged: Path, trained: Path) -> None:
    write("t.tsv", ["abc\tcba", "ab\tba"])
    ended = cli("evaluate", tagged, "t.tsv", "--against", trained, "--to", "fr", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["scores"]["exact"]["value"] == 100


def test_an_unknown_tag(cli, tagged: Path, trained: Path) -> None:
    ended = cli("translate", tagged, "--to", "es", stdin=b"")
    assert (ended.code, ended.err) == (2, "seq2see: --to es: unknown. Choose from: de, fr\n")
    ended = cli("translate", tagged, stdin=b"abc\n")
    assert (ended.code, ended.err) == (2, f"seq2see: {tagged} translates to de, fr: choose a language with --to\n")
    ended = cli("translate", trained, "--to", "de", stdin=b"ab\n")
    assert ended.code == 2
    assert "was trained without --tag" in ended.err


def test_a_tag_needs_a_language(cli) -> None:
    write("x.tsv", [f"{each}\t{each}" for each in numbers()])
    ended = cli("train", "x.tsv", "--tag", *QUICK)
    assert ended.code == 2
    assert ended.err.splitlines()[-1].startswith(
        "seq2see: x.tsv, line 1: --tag needs to know the language of the target"
    )
    ended = cli("train", "x.tsv", "--tag", "--target-language", "a b", *QUICK)
    assert ended.code == 2
    assert "--target-language 'a b': not a language code" in ended.err
    ended = cli("train", "x.tsv", "--tag", "--target-language", "de", *QUICK)
    assert ended.code == 0, ended.err
    assert " ? -> de, by tag\n" in ended.err
    assert len(cli("translate", "runs/x", stdin=b"a1\n").out.splitlines()) == 1  # only one language: no need to choose


def test_validation_in_a_language_that_is_not_trained(cli) -> None:
    for name in ("w.en", "w.de", "v.en", "v.fr"):
        write(name, numbers())
    ended = cli("train", "w.en,w.de", "--tag", "--valid", "v.en,v.fr", *QUICK)
    assert ended.code == 2
    assert "v.en,v.fr, line 1: the target language is 'fr', which is not a target language of the model." in ended.err
    assert "Choose from: de." in ended.err
    assert not Path("runs").exists()
