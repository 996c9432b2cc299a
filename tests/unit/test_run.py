"""A run folder from Python: translate, choose engines and languages, look inside, evaluate."""

import shutil
from pathlib import Path

import pytest

import seq2see
from seq2see import storage
from seq2see.config import Decoding, resolve
from seq2see.decoding import ct2_engine
from seq2see.decoding.hypothesis import Hypothesis, Task
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.errors import DataError, RunError, SettingError
from seq2see.evaluation.evaluations import error_unit
from seq2see.run import Run
from seq2see.text.pair import Pair

WORDS = ["abc", "", "fed", "cab"]


@pytest.fixture(scope="module")
def run(trained: Path) -> Run:
    return seq2see.load(trained)


@pytest.fixture
def tagged(trained: Path, tmp_path: Path) -> Run:
    """A run that says it was trained with --tag for German and French; its model has not seen the tags."""
    folder = shutil.copytree(trained, tmp_path / "tagged")
    settings = (folder / "settings.toml").read_text(encoding="utf-8")
    (folder / "settings.toml").write_text(settings.replace('tags = ""', 'tags = "de fr"'), encoding="utf-8")
    return Run(folder)


class Echo:
    """An engine that answers each task with its own source."""

    name = "echo"

    def __init__(self) -> None:
        self.beams: list[int] = []

    def search(self, tasks: list[Task], settings: Decoding) -> list[list[Hypothesis]]:
        self.beams.append(settings.beam)
        return [[Hypothesis(task.source[:-1], -1.0, -1.0)] * settings.beam for task in tasks]


def test_what_it_knows_of_itself(run: Run) -> None:
    assert repr(run) == f"Run({str(run.folder)!r}, {run.manifest['parameters']:,} parameters)"
    assert run.settings.model.d_model == 32
    assert (run.languages.source, run.languages.target, run.tags) == (None, None, [])
    assert run.metric == run.settings.training.metric == "exact"
    assert run.model is run.bundle.model
    assert len(run.validation_pairs) == run.manifest["validation_pairs"]


def test_what_is_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such run folder"):
        seq2see.load(tmp_path / "none")
    with pytest.raises(RunError, match="not a run folder"):
        seq2see.load(tmp_path)


def test_translations_come_in_the_order_of_their_lines(run: Run) -> None:
    found = run.translate(WORDS)
    assert found[1] == ""
    assert [run.translate([word])[0] for word in WORDS] == found
    assert run.translate([]) == []


def test_one_text_instead_of_a_list_is_a_mistake(run: Run) -> None:
    with pytest.raises(TypeError, match="a list of lines"):
        run.translate("abc")


def test_the_beam_is_as_wide_as_asked_for(run: Run) -> None:
    echo = Echo()
    assert run.search(["abc"], engine=echo)[0].text
    run.search(["abc"], beam=2, engine=echo)
    run.search(["abc"], beam=2, n_best=7, engine=echo)
    assert echo.beams == [run.settings.decoding.beam, 2, 7]
    assert run.settings.decoding.beam == 5, "the settings of the run stay"


@pytest.mark.parametrize("beam", [0, -1, 1000, 2.5])
def test_a_beam_that_cannot_be(run: Run, beam: int) -> None:
    with pytest.raises(SettingError, match=r"decoding\.beam = "):
        run.search(["abc"], beam=beam, engine=Echo())


def test_an_output_may_begin_with_a_prefix(run: Run) -> None:
    (result,) = run.search(["abc"], prefixes=["FA"])
    assert result.text.startswith("FA")


def test_engines_are_made_once(run: Run) -> None:
    assert run.engine("torch") is run.engine("torch", "float32")
    assert run.engine("torch").name == "torch float32"
    with pytest.raises(SettingError, match=r"--engine tortch: unknown\. Did you mean 'torch'\?"):
        run.engine("tortch")


@pytest.mark.parametrize(("obstacle", "expected"), [("no module", "torch float32"), ("", "ctranslate2 int8")])
def test_the_engine_that_is_chosen(run: Run, monkeypatch: pytest.MonkeyPatch, obstacle: str, expected: str) -> None:
    class Opened(Echo):
        name = "ctranslate2 int8"

    monkeypatch.setattr(ct2_engine, "obstacle", lambda settings: obstacle)
    monkeypatch.setattr(ct2_engine, "cuda_is_here", lambda: False)
    monkeypatch.setattr(ct2_engine, "open_engine", lambda folder, precision: Opened())
    assert Run(run.folder).engine().name == expected


def test_while_activations_are_captured_the_model_itself_translates(trained: Path) -> None:
    own = Run(trained)
    kept = own.engine("torch")
    with seq2see.capture(own) as seen:
        assert own.engine().name == "torch float32"
        assert own.engine("torch") is not kept
        own.translate(["abc"])
        assert seen
        with pytest.raises(SettingError, match="uses its own copy"):
            own.search(["abc"], engine=named("ctranslate2 int8"))


def named(name: str) -> Echo:
    echo = Echo()
    echo.name = name
    return echo


def test_a_sampler_draws(run: Run) -> None:
    from seq2see.decoding.search import sampling

    engine = run.sampler(sampling(1.0, 0, 1.0, seed=1))
    assert isinstance(engine, TorchEngine)
    assert run.search(["abc"], beam=1, engine=engine)[0].translations


def test_the_language_is_chosen_by_a_tag(tagged: Run) -> None:
    assert tagged.tags == ["de", "fr"]
    assert tagged.tagged(["a", "", "<2fr> b"], "de") == ["<2de> a", "", "<2fr> b"]
    assert tagged.tagged(["<2fr> b"]) == ["<2fr> b"]
    with pytest.raises(SettingError, match="translates to de, fr: choose a language with --to"):
        tagged.tagged(["a"])
    with pytest.raises(SettingError, match=r"--to it: unknown\. Choose from: de, fr"):
        tagged.tagged(["a"], "it")


def test_a_run_without_tags_has_no_choice(run: Run) -> None:
    assert run.tagged(["a"]) == ["a"]
    with pytest.raises(SettingError, match="was trained without --tag"):
        run.tagged(["a"], "de")


def test_pairs_may_be_given_in_several_ways(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("abc\tABC\nfed\tFED\n", encoding="utf-8")
    engine = run.engine("torch")
    ways = [
        tmp_path / "pairs.tsv",
        str(tmp_path / "pairs.tsv"),
        [("abc", "ABC"), ["fed", "FED"]],
        [Pair("abc", "ABC", "here"), ("fed", "FED", "another reference")],
    ]
    found = [run.evaluate(way, beam=1, engine=engine) for way in ways]
    assert {evaluation.pairs for evaluation in found} == {2}
    assert len({tuple(result.text for result in evaluation.results) for evaluation in found}) == 1


def test_an_evaluation_says_how_it_was_made(run: Run) -> None:
    found = run.evaluate([("abc", "ABC"), ("abc", "abc")], beam=1, n_best=2, engine=run.engine("torch"))
    assert (found.engine, found.beam, found.unreachable) == ("torch float32", 2, 1)
    assert "1 of 2 references (50.0 %) cannot be written" in found.note
    for name, value, signature in found.rows:
        assert name
        assert ("does not apply: " if value is None else "|engine:torch-float32|beam:2") in signature
    assert not run.evaluate([("abc", "ABC")], beam=1, engine=run.engine("torch")).note


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([], "no usable pair"),
        ([("a",)], "pair 1: .* is not a pair"),
        ([("a", "b"), "ab"], "pair 2: 'ab' is not a pair"),
    ],
)
def test_what_cannot_be_evaluated(run: Run, pairs: list[object], words: str) -> None:
    with pytest.raises(DataError, match=words):
        run.evaluate(pairs, engine=Echo())


def test_the_unit_of_the_error_rate() -> None:
    def unit(kind: str) -> str:
        pattern = {"target_pattern": "words"} if kind == "pattern" else {}
        return error_unit(
            resolve({"data": {"shared": False, "target_tokenizer": kind, **pattern}, "model": {"tie": "decoder"}})
        )

    assert [unit(kind) for kind in ("characters", "jamo", "pattern", "unigram")] == [*["characters"] * 3, "symbols"]


def test_looking_inside(run: Run) -> None:
    said = run.translate(["abc"])[0]
    assert run.look("abc").translation == run.look("abc", target=said).translation == said
    assert run.read("abc").source_ids
    with pytest.raises(TypeError, match="look expects one sentence"):
        run.look(["abc"])


def test_heads_are_chosen_for_alignments_once_and_kept(trained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(trained, tmp_path / "run")
    facts = storage.read_manifest(folder)
    del facts["alignment"]
    storage.write_manifest(folder, facts)
    own = Run(folder)
    chosen = own.alignment_method
    assert storage.read_manifest(folder)["alignment"] == chosen.json()
    assert Run(folder).alignment_method.json() == chosen.json()
    results = own.search(["abc", "fed"], n_best=2)
    assert [len(each) for each in own.align(["abc", "fed"], results)] == [2, 2]


def test_a_run_without_validation_pairs_still_aligns(trained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(trained, tmp_path / "run")
    (folder / "validation.jsonl").unlink()
    assert Run(folder).validation_pairs == []


def test_what_a_model_without_attention_does_not_have(trained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(trained, tmp_path / "run")
    (folder / "settings.toml").write_text('[model]\narchitecture = "rnn"\n[data]\nshared = true\n', encoding="utf-8")
    own = Run(folder)
    with pytest.raises(SettingError, match=r"a model without attention .* has no heads"):
        own.head_worth([("a", "A")])
    with pytest.raises(SettingError, match="has no alignments"):
        _ = own.alignment_method


def test_answers_that_take_long_tell_how_far_they_are(trained: Path) -> None:
    own, told = Run(trained), []
    own.watch = lambda what, done, total: told.append((done, total))
    assert own.importance("abc").source_tokens
    worth = own.head_worth([("abc", "ABC")])
    assert worth.pairs == own.head_statistics([("abc", "ABC")]).pairs == 1
    assert told
    assert all(done <= total for done, total in told)
