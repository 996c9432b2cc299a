"""Preparing a run: which pairs are kept, which settings they suggest, and what is said of the others."""

import json
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from conftest import random_words
from seq2see.config import Overlay, Training
from seq2see.errors import DataError, RunError
from seq2see.session import finish, train
from seq2see.session.request import Prepared, Request, Said
from seq2see.session.survey import examine, survey_corpus
from seq2see.storage import read_manifest, write_manifest
from seq2see.text.corpora import for_validation, open_corpus
from seq2see.text.pair import Pair
from seq2see.text.rows import ReadingOptions

WORDS = random_words(1200, 5)
LIMIT: Overlay = {"data": {"max_length": 64}}


def prepared(
    folder: Path, lines: list[tuple[str, str]], valid: Iterable[Pair] | None = None, more: Overlay | None = None
) -> tuple[Prepared, list[str]]:
    """Prepare a run from these pairs; return it and what was said."""
    folder.mkdir()
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in lines), encoding="utf-8")
    said: list[str] = []

    def watch(event: object) -> None:
        if isinstance(event, Said):
            said.append(event.line)

    request = Request(
        path, folder / "run", None, [LIMIT, more or {}], ReadingOptions(), False, False, False, None, watch
    )
    found, _ = train.make_folder(request, open_corpus(str(path)), valid, None, torch.device("cpu"))
    return found, said


def test_how_the_columns_of_the_validation_file_are_read_is_said(tmp_path: Path) -> None:
    path = tmp_path / "valid.tsv"
    path.write_text(
        "".join(f"{number}\t{word}\t{word[::-1]}\n" for number, word in enumerate(WORDS[:60])), encoding="utf-8"
    )
    _, said = prepared(tmp_path / "run", [(word, word[::-1]) for word in WORDS[60:200]], for_validation(path))
    assert sum("valid.tsv: columns after the second are taken as further references" in line for line in said) == 1


def test_validation_on_training_pairs_is_recorded(tmp_path: Path) -> None:
    """The end of the training and its report say that such scores are higher than on new texts."""
    lines = [(word, word[::-1]) for word in WORDS[:100]]
    held = [Pair(*line, "") for line in lines[:5]] + [Pair(word, word, "") for word in WORDS[100:105]]
    found, _ = prepared(tmp_path / "run", lines, held)
    assert found.facts["validation_pairs_with_training_sources"] == 5
    assert "5 of 10 sources of the validation set" in finish._seen_in_training(found.facts)
    few, _ = prepared(tmp_path / "few", lines[:3])
    assert finish._seen_in_training(few.facts) == "the validation set consists of training pairs"
    good, _ = prepared(tmp_path / "good", lines)
    assert finish._seen_in_training(good.facts) == ""


def warnings(said: list[str]) -> list[str]:
    return [line for line in said if line.startswith("warning")]


@pytest.mark.parametrize("kind", ["letters", "words"])
def test_settings_are_those_of_the_pairs_that_are_kept(tmp_path: Path, kind: str) -> None:
    """Most pairs are too long, and there are enough of them to suggest a larger model, vocabulary and dropout."""
    blank = "" if kind == "letters" else " "
    short = [(blank.join(word), blank.join(word.upper())) for word in WORDS[:600]]
    long = [(blank.join(word * 40), blank.join(word * 40)) for word in WORDS[600:]] * 9
    alone, nothing = prepared(tmp_path / "alone", short)
    among, said = prepared(tmp_path / "among", short + long)
    assert among.settings == alone.settings
    assert among.reasons == alone.reasons
    assert among.valid_pairs == [
        pair._replace(where=found.where) for pair, found in zip(alone.valid_pairs, among.valid_pairs, strict=True)
    ]
    assert len(among.valid) == len(among.valid_pairs)
    assert len(among.train) == len(alone.train)
    assert read_manifest(tmp_path / "among" / "run")["dropped_too_long"] == len(long)
    assert not warnings(nothing)
    (line,) = warnings(said)
    assert f"{len(long):,} of {len(short + long):,} pairs, most of the corpus, are left out" in line
    assert f"leaves {len(alone.train):,} for training and {len(alone.valid):,} for validation" in line
    assert "longer than data.max_length = 64 tokens" in line


def some_long(long: int, count: int) -> list[Pair]:
    """Return a validation set of so many pairs, some of which have 70 or more letters."""
    return [
        Pair(word * (70 if number < long else 1), word.upper(), "")
        for number, word in enumerate(WORDS[600 : 600 + count])
    ]


def test_a_validation_set_that_is_mostly_too_long_is_refused(tmp_path: Path) -> None:
    short = [(word, word.upper()) for word in WORDS[:100]]
    with pytest.raises(DataError, match=r"validation set: 143 of 158 pairs .*data.max_length = 64.*--set data.max_len"):
        prepared(tmp_path / "refused", short, some_long(143, 158))
    assert not (tmp_path / "refused" / "run").exists()


def test_validation_pairs_that_are_too_long_are_counted(tmp_path: Path) -> None:
    short = [(word, word.upper()) for word in WORDS[:100]]
    valid = some_long(15, 158)
    found, said = prepared(tmp_path / "counted", short, valid)
    assert found.valid_pairs == [
        pair._replace(where=kept.where) for pair, kept in zip(valid[15:], found.valid_pairs, strict=True)
    ]
    assert len(found.valid) == 143
    facts = read_manifest(tmp_path / "counted" / "run")
    assert (facts["validation_pairs"], facts["validation_dropped_too_long"]) == (143, 15)
    (line,) = warnings(said)
    assert "15 of 158 pairs are longer than data.max_length = 64 tokens" in line
    kept = (tmp_path / "counted" / "run" / "validation.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(each)["source"] for each in kept] == [pair.source for pair in valid[15:]]


def test_nothing_is_said_where_all_validation_pairs_are_short(tmp_path: Path) -> None:
    _, said = prepared(tmp_path / "short", [(word, word.upper()) for word in WORDS[:100]], some_long(0, 30))
    assert not warnings(said)


@pytest.mark.parametrize(("metric", "warned"), [("exact", True), ("loss", False)])
def test_targets_that_cannot_be_written_are_counted_where_exact_match_chooses(
    tmp_path: Path, metric: str, warned: bool
) -> None:
    lines = [(word, word.upper()) for word in WORDS[:100]]
    more: Overlay = {"data": {"normalization": "nfkc_lower"}, "training": {"metric": metric}}
    found, said = prepared(tmp_path / "lower", lines, more=more)
    count = len(found.valid_pairs)
    assert [line.partition(" cannot")[0] for line in warnings(said)] == (
        [f"warning: {count} of {count} validation targets"] if warned else []
    )


def test_a_corpus_that_cannot_be_examined_is_still_trained_on(tmp_path: Path) -> None:
    """The examination may run in a process of its own, which may be killed."""
    path = tmp_path / "pairs.tsv"
    path.write_text("a\tb\nc\td\n", encoding="utf-8")
    corpus = open_corpus(path)
    survey = survey_corpus(corpus.train)

    def killed() -> list[str]:
        raise RunError("a worker process ended")

    assert examine(corpus, survey, None, killed) == ["the corpus could not be examined: a worker process ended"]
    assert not survey.stretches


def test_changed_files_are_reported_when_a_run_is_resumed(tmp_path: Path) -> None:
    """The run folder has the pairs, so that the files are not needed; but whoever changed them may expect otherwise."""
    path, said = tmp_path / "pairs.tsv", list[str]()
    path.write_text("".join(f"{word}\t{word}\n" for word in WORDS[:60]), encoding="utf-8")
    settings = {"model": {"d_model": 16, "d_ff": 16}, "training": {"max_steps": 2, "validate_every": 1}}

    def resumed(steps: int) -> list[str]:
        said.clear()
        longer = {"model": settings["model"], "training": {**settings["training"], "max_steps": steps}}
        watch = lambda event: said.append(event.line if isinstance(event, Said) else "")  # noqa: E731
        train.train(path, tmp_path / "run", settings=longer, resume=steps > 2, watch=watch)
        return [line for line in said if line.startswith("warning: the pairs on disk have changed")]

    assert resumed(2) == []
    assert resumed(3) == []
    with path.open("a", encoding="utf-8") as file:
        file.write("one\tmore\n")
    assert len(resumed(4)) == 1
    write_manifest(tmp_path / "run", read_manifest(tmp_path / "run") | {"corpus_bytes": "many"})
    assert resumed(4) == []  # a damaged manifest
    path.unlink()
    assert resumed(5) == []


@pytest.mark.parametrize("options", [{}, {"resume": True}, {"force": True}], ids=["neither", "resume", "force"])
def test_a_run_that_another_process_makes_meanwhile_is_not_overwritten_without_force(
    options: dict[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{word}\t{word}\n" for word in WORDS[:60]), encoding="utf-8")
    settings = {"model": {"d_model": 16, "d_ff": 16}, "training": {"max_steps": 2, "validate_every": 1}}
    begin = partial(train.train, path, tmp_path / "run", settings=settings, watch=lambda event: None)
    opened, made = train.prepare.open_corpus, list[int]()

    def open_slowly(request: Request) -> object:
        monkeypatch.setattr(train.prepare, "open_corpus", opened)
        begin()
        made.append((tmp_path / "run" / "model.safetensors").stat().st_mtime_ns)
        return opened(request)

    monkeypatch.setattr(train.prepare, "open_corpus", open_slowly)
    with nullcontext() if options else pytest.raises(RunError, match="exists already"):
        begin(**options)
    is_kept = made == [(tmp_path / "run" / "model.safetensors").stat().st_mtime_ns]
    assert is_kept == ("force" not in options)


def test_the_size_of_files_with_commas_or_blanks_in_their_names_is_known(tmp_path: Path) -> None:
    for name in ("a.en", "a.ko", "one,two.tsv"):
        (tmp_path / name).write_text("12345", encoding="utf-8")
    assert train._bytes_of(f"{tmp_path / 'a.en'}, {tmp_path / 'a.ko'}") == 10
    assert train._bytes_of([tmp_path / "one,two.tsv", f"{tmp_path / 'a.en'},{tmp_path / 'a.ko'}"]) == 15
    assert train._bytes_of("multi30k/en-de") is None


def test_a_forecast_knows_the_time_limit_and_the_size_of_the_corpus() -> None:
    training = Training(max_steps=5000, batch_tokens=4096)
    assert finish.forecast(training, 0.5, 100_000) == (
        "at most 41 min 40 s for 5,000 steps on this CPU, plus validations, at 8,192 tokens/s"
    )
    assert finish.forecast(training, 0.5, 512).endswith("at 1,024 tokens/s")
    limited = finish.forecast(replace(training, max_minutes=2), 0.5, 100_000)
    assert limited == "about 240 of 5,000 steps in 2 min on this CPU, at 8,192 tokens/s"
    assert "at most 41 min" in finish.forecast(replace(training, max_minutes=60), 0.5, 100_000)
    cosine = replace(training, schedule="cosine", warmup_steps=400, max_minutes=2)
    assert finish.forecast(cosine, 0.5, 100_000) == limited + "; warm-up ends after 20 s"
    assert finish.forecast(replace(cosine, warmup_steps=30), 0.5, 100_000) == limited
