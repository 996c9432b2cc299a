"""One run through every verb, and the same from Python."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

import seq2see
from seq2see import api, config
from seq2see.errors import RunError
from seq2see.text.pair import Pair


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


QUICK = {
    "model": {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "heads": 2, "d_ff": 12},
    "training": {"max_steps": 3, "warmup_steps": 1, "batch_tokens": 300},
}


def pairs_file(name: str = "pairs.tsv", count: int = 40) -> Path:
    path = Path(name)
    path.write_text("".join(f"{number}\t{number}\n" for number in range(count)) + "\t\n\n")
    return path


# The run folder


def test_a_run_folder_has_all_that_is_promised(trained: Path) -> None:
    names = {path.name for path in trained.iterdir()}
    promised = {"manifest.json", "settings.toml", "source.tokenizer.json", "target.tokenizer.json"}
    promised |= {"model.safetensors", "checkpoints", "metrics.jsonl", "tensorboard", "report.html"}
    assert promised <= names
    assert [name for name in names if name.startswith(".")] == [".lock"]  # nothing half written
    assert list((trained / "tensorboard").glob("events.out.tfevents.*"))
    assert sorted(path.name for path in (trained / "checkpoints").iterdir()) == ["step-00000100", "step-00000150"]


def test_nothing_in_a_run_folder_executes_on_load(trained: Path) -> None:
    kinds = {
        path.suffix
        for path in trained.rglob("*")
        if path.is_file() and path.name != ".lock" and not {"tensorboard", "engines"} & set(path.parts)
    }
    assert kinds <= {".json", ".jsonl", ".toml", ".safetensors", ".html", ".tokens", ".offsets"}


def test_settings_are_all_resolved(trained: Path) -> None:
    written = config.read_toml(trained / "settings.toml")
    keys = {f"{section}.{key}" for section, values in written.items() for key in values}
    assert keys == {key for key, _, _, _ in config.describe()}


def test_the_manifest_says_what_was_trained(trained: Path) -> None:
    facts = json.loads((trained / "manifest.json").read_text())
    assert (facts["format"], facts["version"], facts["state"]) == ("seq2see run", 1, "finished")
    assert (facts["corpus"], facts["steps"], facts["ended"]) == ("upper", 150, "all 150 steps done")
    assert facts["pairs"] + facts["validation_pairs"] == 500
    with safe_open(trained / "model.safetensors", "pt") as weights:
        assert sum(weights.get_tensor(name).numel() for name in weights.keys()) == facts["parameters"]  # noqa: SIM118


def test_the_report_tells_and_needs_nothing_else(trained: Path) -> None:
    page = (trained / "report.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")
    assert "<svg" in page
    assert "upper" in page
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=.https?:", page)
    for word in ("exact", "BLEU", "d_model"):
        assert word.lower() in page.lower()


def test_metrics_are_lines_of_json(trained: Path) -> None:
    rows = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "loss" in row] == list(range(10, 151, 10))
    assert [row["step"] for row in rows if "validation" in row] == [50, 100, 150, 150]


# Verbs


def test_train_says_what_it_does(cli) -> None:
    pairs_file()
    words = [f"{section}.{key}={value}" for section, values in QUICK.items() for key, value in values.items()]
    ended = cli("train", "pairs.tsv", *[part for word in words for part in ("--set", word)])
    assert ended.code == 0
    assert ended.out == ""
    for line in (
        "reading pairs",
        "for validation, 2 dropped (empty)",
        "1 + 1 layers, width 8, 2 heads",
        "at most 3,",
        "done: all 3 steps done",
        f"model  {Path('runs', 'pairs')}",
        f"report {Path('runs', 'pairs', 'report.html')}",
    ):
        assert line in ended.err
    assert cli("translate", "runs/pairs", stdin=b"12\n").code == 0


def test_train_from_parallel_files_with_validation_preset_and_file(cli) -> None:
    Path("mine.en").write_text("a b\nb c\nc d\n")
    Path("mine.ko").write_text("가 나\n나 다\n다 라\n")
    pairs_file("valid.tsv", 5)
    Path("mine.toml").write_text("[model]\nd_model = 16\nheads = 2\nd_ff = 20\n[training]\nmax_steps = 9\n")
    words = ["--valid", "valid.tsv", "--preset", "tiny", "--config", "mine.toml", "--set", "training.max_steps=2"]
    ended = cli("train", "mine.en,mine.ko", *words, "--out", "run")
    assert ended.code == 0, ended.err
    assert "3 training pairs, 5 for validation" in ended.err
    settings = config.resolve(config.read_toml(Path("run/settings.toml")))
    assert (settings.model.encoder_layers, settings.model.norm) == (2, "pre")  # the preset
    assert (settings.model.d_model, settings.model.heads) == (16, 2)  # the file, over it
    assert settings.training.max_steps == 2  # the command, over both


def test_translate(trained: Path, cli) -> None:
    assert cli("translate", trained, stdin=b"ab\nh\n").out == "AB\nH\n"
    assert cli("translate", trained, "--beam", "1", stdin=b"ab\n").out == "AB\n"
    assert cli("translate", trained, "--engine", "torch", stdin=b"ab\n").out == "AB\n"
    assert cli("translate", trained, "--prefix", "C", stdin=b"ab\n").out.startswith("C")
    refused = cli("translate", trained, "--prefix", "한국어", stdin=b"ab\n")
    assert (refused.code, refused.out) == (2, "")
    assert "without a token in the model: 한 국 어." in refused.err
    sampled = [cli("translate", trained, "--sample", "--seed", "4", stdin=b"ab\n" * 9).out for _ in range(2)]
    assert sampled[0] == sampled[1]
    assert sampled[0].count("\n") == 9
    assert cli("translate", trained, "--sample", "--top-k", "1", stdin=b"ab\n").out == "AB\n"


def test_sampling_in_the_precision_that_was_asked_for(trained: Path) -> None:
    from seq2see.cli.options import pick_engine

    for asked, name in ((None, "torch float32"), ("float32", "torch float32"), ("int8", "torch int8")):
        assert pick_engine(seq2see.load(trained), "auto", asked, (1.0, 0, 1.0, None)).name == name


def test_more_lines_than_are_read_at_once_stay_in_order(trained: Path, cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from seq2see.cli import translate

    monkeypatch.setattr(translate, "AT_ONCE", 3)
    ended = cli("translate", trained, "--n-best", "2", stdin=b"ab\nh\nab\nh\nab\nh\nh\n")
    rows = [line.split("\t") for line in ended.out.splitlines()]
    assert [row[0] for row in rows] == [number for number in "1234567" for _ in range(2)]
    assert [row[2] for row in rows[::2]] == ["AB", "H", "AB", "H", "AB", "H", "H"]


def test_evaluate(trained: Path, cli) -> None:
    Path("test.tsv").write_text("ab\tAB\nh\tH\tX\nab\tXX\tAB\nh\twrong\n")
    ended = cli("evaluate", trained, "test.tsv", "--json", "--n-best", "2")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert found["pairs"] == 4
    assert found["engine"] in ("torch float32", "ctranslate2 float32")
    assert found["scores"]["exact"]["value"] == 75.0  # the third has the right one as a further reference
    assert found["scores"].pop("bleu") == {
        "value": None,
        "signature": None,
        "reason": "it counts groups of 4 words, and no target has as many",
    }
    assert all(score["signature"] for score in found["scores"].values())
    assert found["unreachable"] == 1  # the last, in small letters
    other = json.loads(cli("evaluate", trained, "test.tsv", "--json", "--tokenize", "char").out)
    assert "tok:char" in other["scores"]["bleu"]["signature"]
    text = cli("evaluate", trained, "test.tsv", "--engine", "torch")
    assert text.out.startswith("4 pairs of test.tsv, torch float32, beam 5\n")
    assert re.search(r"^exact\s+75\.00 ", text.out, re.MULTILINE)
    assert re.search(r"^bleu\s+-  does not apply: ", text.out, re.MULTILINE)
    assert "1 of 4 references (25.0 %) cannot be written" in text.err


def test_train_refuses_to_choose_by_a_score_that_does_not_apply(cli) -> None:
    pairs_file()
    ended = cli("train", "pairs.tsv", "--out", "run", "--metric", "bleu")
    assert ended.code == 2
    assert "training.metric = 'bleu' does not apply" in ended.err.splitlines()[-1]
    assert not Path("run").exists()


def test_the_report_names_what_was_scored(trained: Path, tmp_path: Path, cli) -> None:
    """The validation set has chosen the model; a set of unseen pairs gets rows of its own."""
    own = Path(shutil.copytree(trained, tmp_path / "own"))
    count = len((own / "validation.jsonl").read_text().splitlines())
    assert f"all {count} validation pairs, greedy search." in (own / "report.html").read_text(encoding="utf-8")
    Path("test.tsv").write_text("ab\tAB\nh\tH\nab\tXX\n")
    assert cli("evaluate", own, "test.tsv", "--beam", "3", "--engine", "torch").code == 0
    page = (own / "report.html").read_text(encoding="utf-8")
    assert '<h3 dir="auto">test.tsv</h3><p>3 pairs, beam 3, torch float32. 1 of 3 references' in page
    assert "66.67" in page
    assert page.index("validation set</h3>") < page.index("test.tsv</h3>") < page.index("Sample translations")


def test_the_report_of_an_unfinished_training_is_left_alone(trained: Path, tmp_path: Path, cli) -> None:
    own = Path(shutil.copytree(trained, tmp_path / "own"))
    before = (own / "report.html").read_bytes()
    manifest = own / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"finished"', '"training"'))
    Path("test.tsv").write_text("ab\tAB\n")
    assert cli("evaluate", own, "test.tsv", "--beam", "1").code == 0
    assert (own / "report.html").read_bytes() == before


def test_train_names_what_it_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All scored pairs are not the first ones: those may be alike."""
    from seq2see import api
    from seq2see.run import Run

    scored: list[str] = []
    evaluate = Run.evaluate

    def listening(self: Run, pairs, **options):
        scored.extend(pair.source for pair in pairs)
        return evaluate(self, pairs, **options)

    monkeypatch.setattr(Run, "evaluate", listening)
    monkeypatch.setattr("seq2see.session.finish.REPORTED", 10)
    pairs_file()
    Path("valid.tsv").write_text("".join(f"{number}\t{number}\n" for number in range(1000, 1100)))
    said: list[str] = []
    run = api.train(
        "pairs.tsv",
        "run",
        valid="valid.tsv",
        settings=QUICK,
        watch=lambda event: said.append(event.line) if isinstance(event, api.Said) else None,
    )
    assert "scoring 10 of 100 validation pairs by greedy search for report.html" in said
    assert "10 of 100 validation pairs, greedy search" in (run.folder / "report.html").read_text(encoding="utf-8")
    assert len(scored) == 10
    assert max(map(int, scored)) > 1050


SCORES = ["chrf", "ter", "exact", "error_rate"]
"""BLEU does not apply to targets of one word."""


@pytest.fixture
def others(trained: Path) -> list[Path]:
    """Three runs: one that has learnt, and two that have not, of different seeds."""
    pairs_file()
    settings = {**QUICK, "data": {"target_tokenizer": "unigram", "source_tokenizer": "unigram"}}
    poor = []
    for seed in (1, 2):
        settings = {**settings, "training": {**QUICK["training"], "seed": seed}}
        poor.append(seq2see.train("pairs.tsv", f"poor{seed}", settings=settings).folder)
    return [trained, *poor]


def test_evaluate_against_another_run(cli, others: list[Path]) -> None:
    good, poor, _ = others
    Path("test.tsv").write_text("".join(f"{one}{two}\t{(one + two).upper()}\n" for one in "abcdef" for two in "cdefg"))
    ended = cli("evaluate", good, "test.tsv", "--against", poor, "--json", "--beam", "2")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert (found["set"], found["pairs"], found["dropped"], found["beam"]) == ("test.tsv", 30, 0, 2)
    assert [run["run"] for run in found["runs"]] == [str(good)]
    assert list(found["differences"]) == SCORES
    for name, each in found["differences"].items():
        ours, theirs = found["scores"][name], found["against"]["scores"][name]
        assert each["difference"] == pytest.approx(ours["value"] - theirs["value"])
        assert each["low"] <= each["difference"] <= each["high"]
        assert ours["signature"] == theirs["signature"]  # the same engine, width and unit for both
    exact = found["differences"]["exact"]
    assert (exact["verdict"], exact["models"]) == ("too few runs", "better")
    assert (exact["low"] > 0, exact["p"] < 0.05, exact["detectable"] >= 0) == (True, True, True)
    comparison = found["comparison"]
    assert (comparison["about"], comparison["runs"], comparison["enough_runs"]) == ("models", [1, 1], False)
    assert "not whether one system" in comparison["note"]

    text = cli("evaluate", poor, "test.tsv", "--against", good, "--beam", "2").out
    assert text.startswith("30 pairs of test.tsv, ")
    assert re.search(rf"^A  {poor}\s+0\.00 ", text, re.MULTILINE)
    assert re.search(rf"^B  {re.escape(str(good))}\s", text, re.MULTILINE)
    numbers = r"-\d+\.\d\d +-\d+\.\d\d to -\d+\.\d\d +0\.002 +\d+\.\d\d"
    assert re.search(rf"^exact +{numbers} +these models: A is worse$", text, re.MULTILINE)
    assert "One run on a side: this tells whether these models differ" in " ".join(text.split())
    same = json.loads(cli("evaluate", good, "test.tsv", "--against", good, "--json").out)
    assert {(each["difference"], each["p"]) for each in same["differences"].values()} == {(0, 1)}


def test_evaluate_several_seeds(cli, others: list[Path]) -> None:
    Path("one.tsv").write_text("ab\tAB\n\n")
    ended = cli("evaluate", *others, "one.tsv", "--json")
    assert ended.code == 0, ended.err
    assert ended.err.splitlines() == [f"translating with {run}" for run in others]
    found = json.loads(ended.out)
    assert [run["scores"]["exact"] for run in found["runs"]] == [100, 0, 0]
    assert found["scores"]["exact"]["value"] == pytest.approx(100 / 3)
    assert found["scores"]["exact"]["deviation"] == pytest.approx(57.735, abs=1e-3)  # by n - 1
    assert (found["pairs"], found["dropped"]) == (1, 1)
    text = cli("evaluate", *others, "one.tsv", "--engine", "torch", "--beam", "1").out
    assert text.startswith("1 pair of one.tsv (1 dropped, a side was empty), torch float32, greedy\n")
    assert re.search(r"^ +chrf +ter +exact +error_rate$", text, re.MULTILINE)
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line}
    assert (rows["mean"][2], rows["deviation"][2]) == ("33.33", "57.74")

    found = json.loads(cli("evaluate", *others[1:], "one.tsv", "--against", others[0], "--n-best", "3", "--json").out)
    assert list(found["differences"]) == [*SCORES[:3], "top_3", "error_rate"]
    assert found["differences"]["exact"]["difference"] == -100
    assert found["differences"]["exact"]["verdict"] == "too few pairs"


def test_evaluate_four_seeds_against_four(cli, trained: Path) -> None:
    """A verdict on the systems, in words and in JSON; runs of one seed are refused, and three are too few."""
    Path("test.tsv").write_text("".join(f"{one}{two}\t{(one + two).upper()}\n" for one in "abcdef" for two in "cdefg"))
    sides: dict[str, list[str]] = {"good": [], "poor": []}
    for seed in range(1, 5):
        for name, runs in sides.items():  # the same models under other seeds: what is compared is told by the settings
            folder = Path(f"{name}{seed}")
            shutil.copytree(trained, folder)
            settings = (folder / "settings.toml").read_text()
            settings = re.sub(r"(?m)^seed = \d+$", f"seed = {seed}", settings)
            if name == "poor":
                settings = re.sub(r"(?m)^max_extra = \d+$", "max_extra = 1", settings)
                settings = re.sub(r"(?m)^max_ratio = .*$", "max_ratio = 0.0", settings)
            (folder / "settings.toml").write_text(settings)
            runs.append(str(folder))
    against = [word for folder in sides["poor"] for word in ("--against", folder)]
    ended = cli("evaluate", *sides["good"], "test.tsv", *against, "--engine", "torch")
    assert ended.code == 0, ended.err
    assert re.search(r"^exact +\+\d+\.\d\d +\+.* 0\.029 +\d+\.\d\d +A is better$", ended.out, re.MULTILINE)
    assert "at most 5% of comparisons of equal systems" in " ".join(ended.out.split())

    few = cli("evaluate", *sides["good"][:3], "test.tsv", *against[:6], "--engine", "torch", "--json")
    found = json.loads(few.out)
    assert found["differences"]["exact"]["verdict"] == "too few runs"
    assert found["differences"]["exact"]["detectable"] is None
    assert found["comparison"]["smallest_p"] == pytest.approx(0.1)
    ended = cli("evaluate", sides["good"][0], sides["good"][0], "test.tsv", *against)
    assert ended.code == 2
    assert "both trained with training.seed = 1" in ended.err


def test_evaluate_with_further_references_and_output(trained: Path, cli) -> None:
    Path("test.tsv").write_text("ab\tx\nh\ty\nbad\tz\n")
    Path("more.txt").write_text("AB\n\nq\n")
    Path("even.txt").write_text("p\nH\nq\n")
    words = ["evaluate", trained, "test.tsv", "--references", "more.txt", "--references", "even.txt", "--json"]
    found = json.loads(cli(*words, "--output", "said.txt").out)
    assert found["scores"]["exact"]["value"] == pytest.approx(200 / 3)
    assert "nrefs:var" in found["scores"]["chrf"]["signature"]
    assert (
        Path("said.txt").read_text() == cli("translate", trained, "--precision", "float32", stdin=b"ab\nh\nbad\n").out
    )
    Path("said.txt").write_text("mine")
    assert cli(*words, "--output", "said.txt").code == 2
    assert Path("said.txt").read_text() == "mine"
    assert cli(*words, "-o", "said.txt", "--force").code == 0
    assert Path("said.txt").read_text().startswith("AB\nH\n")


def test_evaluate_names_the_set(trained: Path, cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seq2see.text.dates.pairs", lambda split: iter([Pair("ab", split, "here")]))
    assert cli("evaluate", trained, "dates").out.startswith("1 pair of dates (test), ")
    assert json.loads(cli("evaluate", trained, "dates", "--json").out)["set"] == "dates (test)"


def test_evaluate_from_python(trained: Path) -> None:
    evaluation = seq2see.load(trained).evaluate([Pair("ab", "AB", "here")], n_best=7)
    assert (evaluation.pairs, evaluation.beam, evaluation.results[0].text) == (1, 7, "AB")
    Path("test.tsv").write_text("ab\tAB\nh\tX\tH\n")
    assert seq2see.load(trained).evaluate("test.tsv").scores["exact"].value == 100


def test_probabilities_of_the_n_best(trained: Path, cli) -> None:
    pytest.importorskip("ctranslate2", reason="the extra `fast` is not installed")
    found = {}
    for engine in ("torch", "ctranslate2"):
        words = ["--n-best", "4", "--json", "--engine", engine, "--precision", "float32"]
        lines = [json.loads(line) for line in cli("translate", trained, *words, stdin=b"abc\n\n").out.splitlines()]
        found[engine] = {each["text"]: each["probability"] for each in lines[0]["translations"]}
        assert all(0 < probability < 1 for probability in found[engine].values())
        assert sum(found[engine].values()) <= 1
        assert lines[1]["translations"] == [{"text": "", "score": 0.0, "probability": 1.0}]
    for text in found["torch"].keys() & found["ctranslate2"].keys():
        assert found["torch"][text] == pytest.approx(found["ctranslate2"][text], rel=1e-3)
    assert found["torch"]["ABC"] > 0.3


def test_train_chooses_by_a_metric_with_several_references(cli) -> None:
    pairs_file()
    Path("valid.tsv").write_text("1\tx\t\n2\ty\tz\n")
    words = [f"{section}.{key}={value}" for section, values in QUICK.items() for key, value in values.items()]
    options = [part for word in words for part in ("--set", word)]
    ended = cli("train", "pairs.tsv", "--valid", "valid.tsv", "--metric", "ter", "--out", "run", *options)
    assert ended.code == 0, ended.err
    assert "if TER does not improve" in ended.err
    rows = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert set(rows[-1]["validation"]) == {"loss", "ter"}
    kept = [json.loads(line) for line in Path("run/validation.jsonl").read_text().splitlines()]
    assert kept == [{"source": "1", "target": "x"}, {"source": "2", "target": "y", "references": ["z"]}]


@pytest.mark.parametrize(("name", "start"), [("x.png", b"\x89PNG"), ("x.svg", b"<?xml"), ("x.pdf", b"%PDF")])
def test_look_draws(trained: Path, cli, name: str, start: bytes) -> None:
    ended = cli("look", trained, "ab", "-o", name)
    assert ended.code == 0, ended.err
    assert ended.out == "AB\n"
    assert name in ended.err
    assert Path(name).read_bytes().startswith(start)


@pytest.mark.parametrize("place", ["encoder", "decoder"])
def test_look_elsewhere(trained: Path, cli, place: str) -> None:
    ended = cli("look", trained, "ab", "--place", place, "--layer", "1", "-o", "x.svg")
    assert ended.code == 0
    assert f"{place} attention of layer 1: x.svg" in ended.err


@pytest.mark.parametrize("picture", ["heads", "alignment", "layers", "beam"])
def test_look_draws_other_pictures(trained: Path, cli, picture: str, tmp_path: Path) -> None:
    ended = cli("look", trained, "ab", "--picture", picture, "-o", tmp_path / "x.svg")
    assert ended.code == 0, ended.err
    assert ended.out == "AB\n"
    again = cli("look", trained, "ab", "--picture", picture, "-o", tmp_path / "x.svg")
    assert again.code == 2
    assert "--force" in again.err
    assert cli("look", trained, "ab", "--picture", picture, "-o", tmp_path / "x.html").code == 0
    assert "<svg" in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_a_picture_has_a_name_of_its_own(trained: Path, cli, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = cli("look", trained, "ab", "--picture", "beam")
    assert (ended.code, ended.err) == (0, "the beam search: beam.png\n")
    assert [path.name for path in tmp_path.iterdir()] == ["beam.png"]


@pytest.mark.parametrize("words", [["--json"], ["-o", "x.html"], ["-o", "x.svg"]])
def test_look_tells_what_has_no_token(trained: Path, cli, words, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = cli("look", trained, "ab", "--target", "日A", *words)
    assert ended.code == 0
    assert "the given translation has characters without a token in the model: 日." in ended.err


def test_look_writes_a_page_or_prints_its_parts(trained: Path, cli, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = cli("look", trained, "ab")
    assert (ended.code, ended.out) == (0, "AB\n")
    page = (tmp_path / "look.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    printed = json.loads(cli("look", trained, "ab", "--target", "BA", "--json").out)
    assert printed["summary"]["translation"] == "BA"
    assert printed["summary"]["own_translation"] == "AB"
    assert {f'id="part:{name}"' in page for name in printed} == {True}


def test_chat_answers_each_line(trained: Path, cli) -> None:
    ended = cli("chat", trained, stdin=b"ab\n\nh\n")
    assert (ended.code, ended.out) == (0, "AB\n\nH\n")


def test_data_list(cli) -> None:
    assert cli("data", "list").out.startswith("dates ")
    listed = [entry["name"] for entry in json.loads(cli("data", "list", "--json").out)]
    assert listed == ["dates", "pronouns", "pronouns-fi", "multi30k-en-de", "chatbot-ko"]


def test_version(cli) -> None:
    ended = cli("--version")
    assert (ended.code, ended.out) == (0, f"seq2see {seq2see.__version__}\n")


def test_a_copied_folder_translates_the_same(trained: Path, cli) -> None:
    """Self-contained: without checkpoints, corpus and logs, and in another place."""
    needed = ("manifest.json", "settings.toml", "source.tokenizer.json", "target.tokenizer.json", "model.safetensors")
    Path("copy").mkdir()
    for name in needed:
        shutil.copy(trained / name, Path("copy", name))
    lines = b"ab\nh\ncafe\nbadge\n"
    assert cli("translate", "copy", "--json", stdin=lines).out == cli("translate", trained, "--json", stdin=lines).out


# Python


def test_the_python_api() -> None:
    pairs_file()
    events: list[api.Event] = []
    run = seq2see.train("pairs.tsv", settings=QUICK, watch=events.append)
    assert run.folder == Path("runs/pairs")
    assert {type(event).__name__ for event in events} == {"Said", "Began", "Stepped", "Validated", "Finished"}
    again = seq2see.load("runs/pairs")
    lines = ["12", "", "7"]
    assert again.translate(lines, beam=5) == run.translate(lines, beam=5)
    assert again.translate(lines)[1] == ""
    seen = again.look("12")
    assert seen.source == "12"
    assert seen.translation == again.translate(["12"])[0]


def test_a_look_has_every_attention_with_names(trained: Path) -> None:
    seen = seq2see.load(trained).look("cab")
    assert seen.source_tokens == ["c", "a", "b", "</s>"]
    assert seen.target_tokens == [*seen.translation, "</s>"]
    assert seen.input_tokens == ["<s>", *seen.translation]
    S, T, H = 4, len(seen.target_tokens), 2
    for layers, shape in ((seen.encoder, (H, S, S)), (seen.decoder, (H, T, T)), (seen.cross, (H, T, S))):
        (weights,) = layers
        assert weights.shape == shape
        assert np.allclose(weights.sum(-1), 1, atol=1e-5)
    assert np.all(np.triu(seen.decoder[0], 1) == 0)  # nobody sees the future


def test_training_again_from_python_needs_force() -> None:
    pairs_file()
    seq2see.train("pairs.tsv", settings=QUICK)
    with pytest.raises(RunError, match="exists already"):
        seq2see.train("pairs.tsv", settings=QUICK)
    assert seq2see.train("pairs.tsv", settings=QUICK, force=True).manifest["steps"] == 3


def test_two_trainings_are_equal_to_the_last_bit() -> None:
    pairs_file()
    one, two = (seq2see.train("pairs.tsv", name, settings=QUICK).folder for name in ("one", "two"))
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()
    other = seq2see.train("pairs.tsv", "other", settings={**QUICK, "training": {**QUICK["training"], "seed": 2}}).folder
    assert (one / "model.safetensors").read_bytes() != (other / "model.safetensors").read_bytes()


def test_one_text_is_not_a_list_of_letters(trained: Path) -> None:
    run = seq2see.load(trained)
    with pytest.raises(TypeError, match="list of lines"):
        run.translate("abc")
    assert repr(run).startswith("Run(")
    assert len(repr(run.look("abc"))) < 400


def test_a_program_that_waits_for_each_answer_gets_it(trained: Path) -> None:
    """A pipe that stays open: the first answer comes before the second question."""
    command = [sys.executable, "-m", "seq2see", "translate", str(trained)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        for question in (b"abc\n", b"hg\n", b"\n", b"a\n"):
            program.stdin.write(question)
            program.stdin.flush()
            assert program.stdout.readline() == question.upper()
        program.stdin.close()
        assert program.stdout.read() == b""
        assert program.wait(60) == 0


def test_translations_come_with_their_alignment(trained, cli):
    plain = cli("translate", trained, stdin=b"bad\n\ncab\n").out
    assert plain == "BAD\n\nCAB\n"
    for engine in ("torch", "auto"):
        ended = cli("translate", trained, "--alignments", "--engine", engine, stdin=b"bad\n\ncab\n")
        assert (ended.code, ended.out) == (0, "BAD\t0-0\n\t\nCAB\t0-0\n")
    ranked = cli("translate", trained, "--alignments", "--n-best", "2", stdin=b"bad\n").out.splitlines()
    assert len(ranked) == 2
    assert ranked[0].split("\t")[2:] == ["BAD", "0-0"]


def test_a_weak_alignment_is_called_so_once(trained, cli, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    path = tmp_path / "run" / "manifest.json"
    manifest = json.loads(path.read_text())
    assert cli("translate", tmp_path / "run", "--alignments", stdin=b"bad\ncab\n").err == ""
    path.write_text(json.dumps(manifest | {"alignment": manifest["alignment"] | {"agreement": 0.2}}))
    ended = cli("translate", tmp_path / "run", "--alignments", stdin=b"bad\ncab\n")
    assert ended.err.count("\n") == 1
    assert "Weak: most links may be wrong" in ended.err
    assert len(ended.out.splitlines()) == 2


def test_alignments_by_characters(trained, cli):
    lines = [
        json.loads(line)
        for line in cli("translate", trained, "--alignments", "--json", stdin=b" badge\n\n").out.splitlines()
    ]
    found = lines[0]["translations"][0]["alignment"]
    assert found["pharaoh"] == "0-0"
    assert [link["target"] for link in found["links"]] == [[place, place + 1] for place in range(5)]
    assert all(1 <= link["source"][0] < link["source"][1] <= 6 for link in found["links"])
    assert lines[1]["translations"][0]["alignment"] == {"pharaoh": "", "links": []}
    unasked = json.loads(cli("translate", trained, "--json", stdin=b"bad\n").out)
    assert "alignment" not in unasked["translations"][0]
