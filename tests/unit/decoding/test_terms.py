"""Terms are in every output, whatever the engine, and everything else stays as it is."""

import json
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import seq2see
from seq2see.config import Decoding
from seq2see.decoding import terms as module
from seq2see.decoding.hypothesis import Hypothesis, Task
from seq2see.decoding.translator import Result
from seq2see.documents.glossary import Glossary
from seq2see.run import Run
from seq2see.text.words import Term

ENGINES = ["torch", "ctranslate2"]
TRANSLATED = {
    "red": "rot",
    "green": "grün",
    "blue": "blau",
    "small": "klein",
    "large": "groß",
    "old": "alt",
    "new": "neu",
    "house": "Haus",
    "tree": "Baum",
    "road": "Weg",
    "car": "Auto",
    "river": "Fluss",
}
WORDS = list(TRANSLATED)


def sentences(count: int, seed: int) -> list[str]:
    dice = random.Random(seed)
    return [" ".join(dice.choices(WORDS, k=dice.randint(2, 6))) for _ in range(count)]


@pytest.fixture(scope="module")
def run(once) -> Run:
    """A model that translates word by word, well but not perfectly, with subwords."""

    def make(folder: Path) -> None:
        pairs = folder / "pairs.tsv"
        lines = [f"{line}\t{' '.join(TRANSLATED[word] for word in line.split())}\n" for line in sentences(600, 1)]
        pairs.write_text(
            "".join([*lines, "one two three four five\tFahrzeug Bäume grünes Wagen Straße\n" * 5]), "utf-8"
        )
        small = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 32, "heads": 2, "d_ff": 64, "dropout": 0.0}
        seq2see.train(
            pairs,
            out=folder / "run",
            tune=0,
            settings={
                "data": {"source_tokenizer": "unigram", "target_tokenizer": "unigram", "shared": False},
                "model": small,
                "training": {"max_steps": 70, "warmup_steps": 15, "batch_tokens": 800, "validate_every": 70},
            },
        )

    return seq2see.load(once("words", make) / "run")


class Uniform:
    """Engine for which every token is equally probable."""

    name, constrains = "uniform", False

    def search(self, tasks: list[Task], settings: Decoding) -> list[list[Hypothesis]]:
        return [[] for _ in tasks]

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        return [[-1.0] * (len(target) + 1) for target in targets]


def searched(run: Run, engine: str, lines: Sequence[str], glossary: Glossary, **options: object) -> list[Result]:
    return run.search(lines, engine=run.engine(engine, "float32"), glossary=glossary, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ENGINES)
def test_terms_are_present_and_other_lines_unchanged(run: Run, engine: str) -> None:
    lines = [*sentences(40, 2), "", "  "]
    glossary = Glossary.of({"car": "Fahrzeug", "old road": ["Straße", "Wagen"], "tree": "tree"})
    plain = run.search(lines, engine=run.engine(engine, "float32"))
    results = searched(run, engine, lines, glossary)
    hows = set()
    for line, before, after in zip(lines, plain, results, strict=True):
        asked = glossary.terms_in(line)
        terms = after.translations[0].terms
        assert [(term.source, term.text) for term in terms] == [((each.start, each.end), each.text) for each in asked]
        if not asked:
            assert after == before
        for term, each in zip(terms, asked, strict=True):
            assert term.target is not None
            assert after.text[slice(*term.target)] == term.form
            assert term.form in each.forms
            hows.add(term.how)
        assert module._doubles(after.text) <= max(module._doubles(line), module._doubles(before.text))
    assert hows - {"search"}, "the model would have said all of this anyway"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_form_that_the_tokenizer_cannot_write_is_put_into_the_text(trained: Path, engine: str) -> None:
    """Its vocabulary is capital letters: the form has none of them."""
    results = searched(seq2see.load(trained), engine, ["abc", "bad"], Glossary.of({"abc": "ключ 🔑"}))
    assert results[0].text == "ключ 🔑"
    (term,) = results[0].translations[0].terms
    assert (term.how, term.target) == ("replacement", (0, 6))
    assert results[1].translations[0].terms == ()


@pytest.mark.parametrize("engine", ENGINES)
def test_characters_and_several_terms_in_one_line(trained: Path, engine: str) -> None:
    glossary = Glossary.of({"abc": "AH", "fed": "GGB"})
    (result,) = searched(seq2see.load(trained), engine, ["abc fed"], glossary)
    assert {"AH", "GGB"} <= {*re.findall(r"\w+", result.text)}  # with "⁇" for a space


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_term_twice_has_a_place_for_each_time(run: Run, engine: str) -> None:
    (result,) = searched(run, engine, ["car and car"], Glossary.of({"car": "Auto"}))
    first, second = result.translations[0].terms
    assert (first.source, second.source) == ((0, 3), (8, 11))
    assert first.target is not None
    assert second.target is not None


def test_n_best_lists_begin_with_the_output_that_has_the_terms(run: Run) -> None:
    (result,) = searched(run, "ctranslate2", ["red car"], Glossary.of({"car": "Fahrzeug"}), n_best=3)
    first, *others = result.translations
    assert "Fahrzeug" in first.text.split()
    assert len(others) == 2
    assert all(term.how == "missing" for each in others for term in each.terms if "Fahrzeug" not in each.text)


def test_a_prefix_and_a_glossary(run: Run) -> None:
    for name in ENGINES:
        (result,) = searched(run, name, ["red car"], Glossary.of({"car": "Fahrzeug"}), prefixes=["blau"])
        assert result.text.startswith("blau")
        assert "Fahrzeug" in result.text.split()


def test_both_engines_score_given_outputs_alike(run: Run) -> None:
    lines = sentences(10, 3)
    sources = [result.source for result in run.search(lines)]
    targets = run.tokenizers.target.encode(["rotes Haus", "", *("alt neu" for _ in lines[2:])])
    ours, theirs = (run.engine(name, "float32").score(sources, targets) for name in ENGINES)
    for one, two, target in zip(ours, theirs, targets, strict=True):
        assert len(one) == len(two) == len(target) + 1
        assert one == pytest.approx(two, abs=0.02)


@pytest.mark.parametrize("text", ["Wagen Fahrzeug", "Fahrzeug Wagen", "Wagen Wagen"])
def test_terms_that_share_a_translation_have_one_place_each(text: str) -> None:
    car, carriage = Term(0, 3, "car", ("Wagen", "Fahrzeug")), Term(4, 12, "carriage", ("Wagen",))
    for terms in ([car, carriage], [carriage, car]):
        places = module._places(text, terms)
        assert None not in places
        assert len({*places}) == 2
    assert module._places("Wagen", [car, carriage]).count(None) == 1


@pytest.mark.parametrize("entries", [{"eins": "A", "zwei": "A B"}, {"zwei": "A B", "eins": "A"}])
def test_a_word_that_completes_another_missing_term(trained: Path, entries: dict[str, str]) -> None:
    """Before "B", the form "A" of one term makes the text contain the other term instead."""
    tokenizers = seq2see.load(trained).tokenizers
    line = " ".join(entries)
    task = Task(tokenizers.source.encode([line])[0], 20, [])
    sentence = module._Sentence(task, line, 0, Glossary.of(entries).terms_in(line), tokenizers)
    sentence.begin([sentence.candidate(Hypothesis([], -1.0, -1.0), "B")])
    module._replace_words(Uniform(), Decoding(), sentence)
    assert sentence.missing == []


def test_doubled_words_are_counted() -> None:
    assert [module._doubles(text) for text in ("a b", "a A b", "a b a b", "")] == [0, 1, 1, 0]


def test_the_command_line(run: Run, cli, tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("car\tFahrzeug\n", encoding="utf-8")
    ended = cli("translate", run.folder, "--glossary", path, "--json", stdin=b"red car\nred house\n")
    first, second = map(json.loads, ended.out.splitlines())
    (term,) = first["translations"][0]["terms"]
    start, end = term["target"]
    assert first["translations"][0]["text"][start:end] == term["form"] == "Fahrzeug"
    assert (term["source"], term["text"]) == ([4, 7], "car")
    assert term["how"] in ("n-best", "prefix", "replacement")
    assert "terms" not in second["translations"][0]
    assert f"1 terms of {path} in the input; method that enforced them: {term['how']} 1" in ended.err
    ended = cli("translate", run.folder, "--glossary", tmp_path / "none.tsv")
    assert (ended.code, ended.err.count("\n")) == (2, 1)


def test_terms_need_no_torch(run: Run) -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "import seq2see\n"
        "run = seq2see.load(sys.argv[1])\n"
        "print(run.translate(['red car'], glossary=seq2see.Glossary.of({'car': 'Fahrzeug'}))[0])\n"
    )
    found = subprocess.run([sys.executable, "-c", program, run.folder], capture_output=True, text=True, check=True)
    assert "Fahrzeug" in found.stdout.split()
