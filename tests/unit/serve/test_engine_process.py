"""What an engine process does with jobs, without the process."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seq2see.config import Decoding
from seq2see.decoding import continuous
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.documents.glossary import Glossary
from seq2see.run import Run
from seq2see.serve.engine_process import Inbox, Worker
from seq2see.serve.jobs import Asked, Key, Setup, cost, source_tokens
from seq2see.tokens import tokenizers


class Heard(list[tuple[Any, ...]]):
    """What a worker sent; `hang_up` takes a job away as soon as it has said so many tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.gone: set[int] = set()
        self.hang_up: dict[int, int] = {}

    def send(self, message: tuple[Any, ...]) -> None:
        self.append(message)
        for number, tokens in self.hang_up.items():
            if len(self.of(number)) >= tokens:
                self.gone.add(number)

    def of(self, number: int) -> list[tuple[Any, ...]]:
        return [message for message in self if message[1] == number]


@pytest.fixture
def heard() -> Heard:
    return Heard()


def worker(trained: Path, heard: Heard, engine: str = "torch", output_tokens: int = 1000) -> Worker:
    made = Worker(Setup({"run": trained}, engine, None, output_tokens, engine == "torch"), heard.send, heard.gone)
    assert heard.pop()[0] == "ready"
    return made


def asked(*lines: str, n_best: int = 1) -> Asked:
    return Asked(lines, n_best=n_best)


def test_jobs_together_are_answered_as_alone(trained, heard):
    jobs = [(1, asked("cab", n_best=2)), (2, asked("", "fade")), (3, asked("bad"))]
    worker(trained, heard).do(Key("translate", "run", 5), jobs)
    run = Run(trained)
    for (number, what), (kind, answered, (name, results)) in zip(jobs, heard, strict=True):
        assert (kind, answered, name) == ("done", number, "torch float32")
        alone = run.search(what.lines, 5, what.n_best, engine=run.engine("torch"))
        assert [[each["text"] for each in result["translations"]] for result in results] == [
            [each.text for each in result.translations] for result in alone
        ]


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_terms_of_different_glossaries_in_one_batch(trained, heard, engine):
    if engine == "ctranslate2":
        pytest.importorskip("ctranslate2", reason="the extra 'fast' is not installed")
    first, second = Glossary.of({"cab": "XYZ"}), Glossary.of({"bad": "QQ"})
    jobs = [
        (number, Asked(lines, terms=[glossary.terms_in(line) for line in lines]))
        for number, lines, glossary in ((1, ["cab", "bad"], first), (2, ["bad", "", "cab"], second))
    ]
    worker(trained, heard, engine).do(Key("translate", "run", 2, has_terms=True), jobs)
    said = [[each["translations"][0]["text"] for each in results] for _, _, (_, results) in heard]
    assert said == [["XYZ", "BAD"], ["QQ", "", "CAB"]]


def with_pattern(trained: Path, folder: Path, expression: str) -> Path:
    """Copy a run whose sources are then cut by an expression."""
    shutil.copytree(trained, folder)
    for path in folder.glob("*.tokenizer.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"kind": "pattern", "pattern": expression}))
    return folder


@pytest.mark.parametrize("expression", ["(?:[a-z]+)+!", "(a|a)*b|[a-z]", "(a*)*b"])
def test_an_evil_pattern_does_not_hang_the_service(trained, heard, tmp_path, expression):
    run = with_pattern(trained, tmp_path / "run", expression)
    worker(run, heard).do(Key("translate", "run", 1), [(1, asked("a" * 200)), (2, asked("cb"))])
    assert [message[:2] for message in heard] == [("refused", 1), ("done", 2)]


def test_a_pattern_that_takes_too_long_is_a_refused_request(trained, heard, tmp_path):
    made = worker(with_pattern(trained, tmp_path / "run", r"(a+)\1*\1*\1*\1*b"), heard)
    made.do(Key("translate", "run", 1), [(1, asked("a" * 5000)), (2, asked("cab"))])
    assert [message[:2] for message in heard] == [("refused", 1), ("done", 2)]
    assert heard[0][2] == 400
    assert "takes longer than" in heard[0][3]


def test_who_hangs_up_is_dropped_at_the_next_step(trained, heard):
    heard.hang_up = {1: 2}
    long = "abcdefgh" * 4
    worker(trained, heard).do(Key("stream", "run", 1), [(1, asked(long)), (2, asked(long))])
    assert len([message for message in heard.of(1) if message[0] == "token"]) == 2
    assert len([message for message in heard.of(2) if message[0] == "token"]) > 2


def test_jobs_of_those_who_left_are_not_begun(trained, heard):
    heard.gone.add(1)
    worker(trained, heard).do(Key("translate", "run", 1), [(1, asked("cab")), (2, asked("bad"))])
    assert [message[1] for message in heard] == [2]


def test_outputs_end_at_the_limit(trained, heard):
    worker(trained, heard, output_tokens=3).do(Key("translate", "run", 1), [(1, asked("abcdefgh"))])
    ((_, _, (_, (result,))),) = heard
    assert len(result["translations"][0]["text"]) <= 3


def looked(text: str, *parts: str) -> Asked:
    return Asked([text], parts=parts)


def test_a_look_that_nobody_waits_for_ends_at_the_next_step(trained, heard, monkeypatch):
    made, steps = worker(trained, heard), []
    watched = TorchEngine._watch_of

    def hang_up(engine: TorchEngine, batch: list[int]) -> Any:
        watch = watched(engine, batch)

        def step_by_step(step: Any) -> Any:
            steps.append(step)
            heard.gone.add(1)
            return watch(step)

        return step_by_step

    monkeypatch.setattr(TorchEngine, "_watch_of", hang_up)
    made.do(Key("look", "run", alone=1), [(1, looked("abcdefgh" * 4))])
    assert len(steps) == 1
    assert heard == []
    monkeypatch.undo()
    made.do(Key("look", "run", alone=2), [(2, looked("cab", "summary"))])
    assert heard[0][:2] == ("done", 2)


LONG = [
    ("the sentence", looked("ab" * 100)),
    ("the given translation", Asked(["cab"], target="AB" * 100)),
    ("the other translation", Asked(["cab"], contrast={"that": "AB" * 100, "at": None})),
    ("the sentence", Asked(["cab", "ab" * 100], patch={"name": "encoder_norm"})),
]


@pytest.mark.parametrize(("what", "job"), LONG)
def test_a_text_that_is_too_long_is_refused_with_advice_for_clients(trained, heard, what, job):
    """A client of the service cannot use options of the command line, such as `-o FILE.png` and `--target`."""
    worker(trained, heard).do(Key("look", "run", alone=1), [(1, job)])
    assert [message[:3] for message in heard] == [("refused", 1, 400)]
    assert heard[0][3] == f"{what} has 201 tokens: at most 128 can be shown. Shorten it"
    assert heard[0][4] == {"code": "too_long", "tokens": 201, "most": 128}


def test_insides_are_remembered_by_their_size(trained, heard):
    made = worker(trained, heard)
    made.LOOK_TOKENS = 20
    for number, text in enumerate(["cab", "bad", "abcdefgh", "abcdefgha", "cab"]):
        made.do(Key("look", "run", alone=number), [(number, looked(text))])
        sizes = [each.tokens for each in made._looks.values()]
        assert len(sizes) == 1 or sum(sizes) <= 20
    assert len(sizes) == 1
    assert len(heard) == 5


def test_nobody_hears_a_token_twice(trained, heard, monkeypatch):
    """A search of two streams fails at the third token: those who have heard of it are refused."""
    made = worker(trained, heard)
    send, failing = made._send, iter([True])

    def fragile(message: tuple[Any, ...]) -> None:
        if message[:2] == ("token", 2) and len(heard) > 3 and next(failing, False):
            raise RuntimeError
        send(message)

    made._send = fragile
    made.do(Key("stream", "run", 1), [(1, asked("fade")), (2, asked("bad"))])
    for number in (1, 2):
        *tokens, last = heard.of(number)
        texts = [what[0]["text"] for _, _, *what in tokens]
        assert len(set(texts)) == len(texts) > 0
        assert last[:3] == ("refused", number, 500)


def test_one_that_fails_does_no_harm_to_others(trained, heard, monkeypatch, capsys):
    made = worker(trained, heard)
    search = Run.search

    def fragile(self: Run, lines: Any, *rest: Any, **more: Any) -> Any:
        if "secret" in lines:
            raise RuntimeError("cannot bear 'secret'")
        return search(self, lines, *rest, **more)

    monkeypatch.setattr(Run, "search", fragile)
    made.do(Key("translate", "run", 1), [(1, asked("cab")), (2, asked("secret")), (3, asked("bad"))])
    assert [message[:2] for message in heard] == [("done", 1), ("refused", 2), ("done", 3)]
    assert heard[1][2] == 500
    assert "RuntimeError" in (logged := capsys.readouterr().err)
    assert "secret" not in logged.replace('"secret" in lines', "").replace("cannot bear 'secret'\")", "")


def test_of_runs_that_know_all_letters_the_likelier_needs_fewer_tokens(trained, heard):
    def source(*words: str) -> Any:
        tokenizer = SimpleNamespace(
            familiar=lambda text: float(text.isascii()),
            encode=lambda texts: [re.findall(f"{'|'.join(words)}|.", text) for text in texts],
        )
        return SimpleNamespace(tokenizers=SimpleNamespace(source=tokenizer))

    made = worker(trained, heard)
    made._runs = {"run": source("the", "cat"), "fr": source("le", "chat")}
    made.do(Key("detect", "run"), [(1, asked("the cat", "le chat", "고양이"))])
    assert [list(found.items()) for found in heard[0][2]] == [
        [("run", 1.0), ("fr", 1.0)],
        [("fr", 1.0), ("run", 1.0)],
        [("run", 0.0), ("fr", 0.0)],
    ]


DECODING = Decoding()


def estimated(tokens: int, beam: int = 5, **more: int) -> int:
    return cost(tokens, beam, 1.0, DECODING, 2048, **more)


def test_it_grows_with_length_and_beam():
    assert estimated(100) > 4 * estimated(10)
    assert estimated(100, beam=10) > 1.5 * estimated(100)
    assert estimated(1) >= 1


def test_what_is_not_read_costs_nothing():
    assert estimated(100_000) == estimated(DECODING.max_source)


@pytest.mark.parametrize("tokens", [1, 2, 10, 100, 1000])
@pytest.mark.parametrize("beam", [1, 10])
def test_an_output_that_runs_on_costs_at_most_four_times_the_estimate(tokens: int, beam: int):
    worst = cost(tokens, beam, 100.0, DECODING, 2048)
    assert worst <= 4 * estimated(tokens, beam) + 4


def test_a_known_output_counts_in_full():
    assert estimated(2, least_output=1000) > 5 * estimated(2)


@pytest.mark.parametrize("kind", ["bpe", "characters", "jamo", "symbols", "marks", "pattern"])
def test_tokens_are_never_fewer_than_the_model_reads(kind):
    trained = tokenizers.train(kind, ["a bad cab"], 300, pattern="words" if kind == "pattern" else "")
    run = SimpleNamespace(tokenizers=SimpleNamespace(source=trained), tags=[])
    texts = ["", " bad cab ", "日本" * 50, "a" * 99]
    read = [len(ids) + 1 for ids in trained.encode([text.strip() for text in texts])]
    assert all(found >= tokens for found, tokens in zip(source_tokens(run, texts), read, strict=True))


def in_slots(trained: Path, heard: Heard, more: Any = lambda key: [], output_tokens: int = 1000) -> Worker:
    setup = Setup({"run": trained}, "torch", None, output_tokens, False, in_slots=True)
    made = Worker(setup, heard.send, heard.gone, more)
    (kind, facts) = heard.pop()
    assert (kind, facts["run"].slots) == ("ready", continuous.MOST)
    return made


@pytest.fixture
def few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuous, "SIZES", (2, 4))
    monkeypatch.setattr(continuous, "MOST", 4)


def test_jobs_in_slots_are_answered_as_alone_also_those_that_join(trained, heard, few_slots):
    first = [(1, asked("cab", n_best=2)), (2, asked("", "fade")), (3, asked(""))]
    later = [[(4, asked("bad"))], [], [(5, asked("abcdefgh")), (6, asked("deaf", "cab", "fade", n_best=5))]]
    worker_ = in_slots(trained, heard, lambda key: later.pop(0) if later else [])
    everything = {number: what for some in (first, *later) for number, what in some}
    worker_.do(Key("translate", "run", 5), first)
    assert sorted(message[1] for message in heard) == [1, 2, 3, 4, 5, 6]
    run = Run(trained)
    for kind, number, (name, results) in heard:
        assert (kind, name) == ("done", "torch float32")
        what = everything[number]
        alone = run.search(what.lines, 5, what.n_best, engine=run.engine("torch"))
        assert [[each["text"] for each in result["translations"]] for result in results] == [
            [each.text for each in result.translations] for result in alone
        ]


def test_who_leaves_frees_its_slots(trained, heard, few_slots, monkeypatch):
    entered: list[Any] = []
    enter = continuous.Slots.enter
    monkeypatch.setattr(continuous.Slots, "enter", lambda slots, *what: (entered.append(what), enter(slots, *what)))
    worker_ = in_slots(trained, heard, lambda key: heard.gone.add(1) or [])
    entered.clear()
    worker_.do(Key("translate", "run", 1), [(1, asked(*["abcdefgh" * 4] * 10)), (2, asked("cab"))])
    assert [message[:2] for message in heard] == [("done", 2)]
    assert sum(len(tasks) for _, tasks in entered) <= 5  # four of the first, then only the second


def test_a_mistake_in_one_job_in_slots_does_no_harm_to_others(trained, heard, tmp_path, few_slots):
    run = with_pattern(trained, tmp_path / "run", "(a*)*b")
    in_slots(run, heard).do(Key("translate", "run", 1), [(1, asked("a" * 200)), (2, asked("cb"))])
    assert [message[:2] for message in heard] == [("refused", 1), ("done", 2)]


def test_where_slots_fail_jobs_are_searched_without_them(trained, heard, few_slots, monkeypatch, capsys):
    worker_ = in_slots(trained, heard)

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(continuous.SlotSearch, "advance", fail)
    for number in (1, 3):
        worker_.do(Key("translate", "run", 1), [(number, asked("cab")), (number + 1, asked("bad"))])
    assert [message[:2] for message in heard] == [("done", number) for number in (1, 2, 3, 4)]
    assert capsys.readouterr().err.count("in separate batches from now on") == 1


def test_messages_with_the_same_key_join_in_their_order():
    inbox, one, other = Inbox(), Key("translate", "run", 1), Key("translate", "run", 5)
    assert inbox.is_empty
    for key, number in ((one, 1), (one, 2), (other, 3), (one, 4)):
        inbox.put(("do", key, [(number, asked("cab"))]))
    assert inbox.get()[2][0][0] == 1
    assert [number for number, _ in inbox.more(one)] == [2]
    assert inbox.more(one) == []
    assert inbox.joined == 1
    assert not inbox.is_empty
    assert [inbox.get()[2][0][0] for _ in range(2)] == [3, 4]
    assert inbox.is_empty
