"""The engine in a process of its own: jobs in through one pipe, answers out through another.

It may take its time, crash or be killed: whoever serves HTTP only waits for a pipe. It knows of no network. Messages
are pickled, each after its length; a thread reads them, so that a job can be given up while it is worked on.

    in      Setup, then ("do", key, [(number, what), ...]) and ("gone", number)
    out     ("ready", {model: Facts}) or ("failed", line), then for each job
            ("token", number, event)..., ("done", number, answer) or ("refused", number, status, line); ("end",)
"""

import contextlib
import copy
import json
import os
import queue
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from seq2see import conversation
from seq2see.config import Decoding, Settings
from seq2see.decoding.hypothesis import Engine, Hypothesis, Task
from seq2see.decoding.translator import Result
from seq2see.errors import SeqError
from seq2see.machine import framed, read
from seq2see.run import Run
from seq2see.serve import work
from seq2see.serve.log import report

if TYPE_CHECKING:
    from seq2see.decoding.search import SearchStep, Watch
    from seq2see.decoding.torch_engine import TorchEngine

Kind = Literal["translate", "chat", "stream", "look", "detect"]


@dataclass(frozen=True)
class Setup:
    """What a process is told first."""

    runs: dict[str, Path]
    engine: str
    precision: str | None
    output_tokens: int
    inside: bool
    """Whether it is the one that looks inside, draws words and streams them, all of which needs torch."""
    niceness: int = 0
    """How much other processes are preferred over it when the processor is busy; see `os.nice`."""


class Facts(NamedTuple):
    """What is known of a model once it is loaded."""

    engine: str
    tokens_for_character: float
    output_ratio: float = 1.0
    """Target tokens for each source token in the validation pairs."""
    ordinary: int = 0
    """The estimated work for a text of ordinary length with the beam of the run; see `work.cost`."""
    rate: float = 0.0
    """Work a second, measured while it was loaded; 0 where it was not measured."""


class Key(NamedTuple):
    """Jobs with the same key may be worked on together."""

    kind: Kind
    model: str
    beam: int | None = None
    forced: bool = False
    """Whether they bring prefixes."""
    alone: int = 0
    """Another number for each job that is to be worked on alone."""


class GivenUpError(Exception):
    """Whoever asked does not wait any more."""


class Bounded:
    """An engine whose outputs end at a limit, if they have not before."""

    def __init__(self, engine: Engine, most: int) -> None:
        self.name = engine.name
        self._engine = engine
        self._most = most

    def search(self, tasks: list[Task], settings: Decoding) -> list[list[Hypothesis]]:
        return self._engine.search([replace(task, limit=min(task.limit, self._most)) for task in tasks], settings)


Send = Callable[[tuple[Any, ...]], None]
Jobs = list[tuple[int, dict[str, Any]]]


class Worker:
    """Does jobs, several at once where they have the same key."""

    LOOK_TOKENS = 256
    """Of both sides of all translations whose insides are remembered, since a page asks for them part by part; the last
    one is, whatever its size. Of a base model, that many tokens are more than a hundred megabytes of numbers."""

    def __init__(self, setup: Setup, send: Send, gone: Collection[int]) -> None:
        self._setup = setup
        self._send = send
        self._gone = gone
        self._runs = {name: Run(folder) for name, folder in setup.runs.items()}
        self._looks: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._told: set[int] = set()
        """Those of the last streams that have heard a token: to begin anew would tell it twice."""
        facts = {}
        for name, run in self._runs.items():
            first = run.tagged(["a"], run.tags[0] if run.tags else None)
            taken = self._drawing(run, None, None) if setup.inside else self._engine_for(run, {}, False, [0], first)
            if setup.inside and run.settings.model.attention:
                _ = run.alignment_method  # chosen once for a run, which may take half a minute
            with taken as engine:
                run.search(first, engine=engine)  # takes longest
                facts[name] = _facts(run, engine, 1 if setup.inside else None, setup.output_tokens)
        send(("ready", facts))

    def do(self, key: Key, jobs: Jobs) -> None:
        """Answer all jobs; where together they fail, each alone, so that one of them does no harm to the others."""
        jobs = [job for job in jobs if job[0] not in self._gone]
        try:
            if jobs:
                self._answer(key, jobs)
        except Exception as problem:
            told = self._told
            for number, what in jobs:
                if len(jobs) > 1 and number not in told:
                    self.do(key, [(number, what)])
                elif isinstance(problem, SeqError):
                    self._send(("refused", number, 400, " ".join(str(problem).split())))
                elif not isinstance(problem, GivenUpError):
                    report(problem, "the engine")
                    self._send(("refused", number, 500, "the engine failed on this text"))

    def _answer(self, key: Key, jobs: Jobs) -> None:
        run = self._runs[key.model]
        match key.kind:
            case "translate":
                self._translate(run, key, jobs)
            case "chat":
                self._chat(run, key, jobs)
            case "stream":
                self._stream(run, jobs)
            case "look":
                for number, what in jobs:
                    with self._given_up(run, number):
                        self._send(("done", number, self._look(key.model, run, what)))
            case "detect":
                for number, what in jobs:
                    self._send(("done", number, [self._familiar(text) for text in what["texts"]]))

    def _translate(self, run: Run, key: Key, jobs: Jobs) -> None:
        lines = [line for _, what in jobs for line in run.tagged(what["lines"], what["to"])]
        prefixes = [what["prefix"] or "" for _, what in jobs for _ in what["lines"]] if key.forced else None
        n_best = max(what["n_best"] for _, what in jobs)
        owners = [number for number, what in jobs for _ in what["lines"]]
        with self._engine_for(run, jobs[0][1], key.forced, owners, lines) as engine:
            rest = iter(run.search(lines, key.beam, n_best, prefixes, engine))
        for number, what in jobs:
            results = [next(rest) for _ in what["lines"]]
            if number in self._gone:
                continue
            results = [replace(each, translations=each.translations[: what["n_best"]]) for each in results]
            answer = [_plain(each) for each in results]
            if what.get("alignments"):
                for each, links in zip(answer, run.align(what["lines"], results, what["to"]), strict=True):
                    for translation, link in zip(each["translations"], links, strict=True):
                        translation["alignment"] = link.json()
            if what.get("familiar"):
                for each, line in zip(answer, what["lines"], strict=True):
                    each["familiar"] = run.tokenizers.source.familiar(line)
            self._send(("done", number, (engine.name, answer)))

    def _chat(self, run: Run, key: Key, jobs: Jobs) -> None:
        words, listener = conversation.words_for(run), _listener(run)
        heard = {number: conversation.hear(run, what["text"], words) for number, what in jobs}
        asked = [(number, what) for number, what in jobs if not heard[number][1]]
        answers = {number: ("", note) for number, (_, note) in heard.items() if note}
        if asked:
            lines = [run.tagged([heard[number][0]], what["to"])[0] for number, what in asked]
            with self._engine_for(run, asked[0][1], False, [number for number, _ in asked], lines) as engine:
                for (number, _), result in zip(asked, listener.search(lines, key.beam, engine=engine), strict=True):
                    if result.translations:
                        answers[number] = conversation.answer(result, words)
        for number, (said, note) in answers.items():
            self._send(("done", number, {"answer": said, "note": note}))

    def _stream(self, run: Run, jobs: Jobs) -> None:
        """Token by token; of several jobs, all take the likeliest token, and one alone may draw."""
        asked: Jobs = []
        lines: list[str] = []
        words = conversation.words_for(run)
        for number, what in jobs:
            line, note = conversation.hear(run, what["text"], words) if what["chat"] else (what["text"], "")
            if note or not line.strip():
                nothing = {"text": "", "score": 0.0, "probability": 1.0, "cut": False, "note": note}
                self._send(("done", number, nothing))
                continue
            asked.append((number, what))
            lines.append(run.tagged([line], what["to"])[0])
        if not asked:
            return
        said: list[list[int]] = [[] for _ in asked]
        self._told = told = set()
        target = run.tokenizers.target

        def tell(step: "SearchStep") -> set[int]:
            for row, place in enumerate(step.sentences):
                token = int(step.tokens_BC[row, 0])
                said[place].append(token)
                event = {"token": target.pieces([token])[0], "text": target.decode(said[place])}
                told.add(asked[place][0])
                self._send(("token", asked[place][0], event))
            return {place for place, (number, _) in enumerate(asked) if number in self._gone}

        forced = any(what["prefix"] for _, what in asked)
        prefixes = [what["prefix"] or "" for _, what in asked] if forced else None
        settings = _listener(run) if asked[0][1]["chat"] else run
        with self._drawing(run, asked[0][1]["sampling"], tell) as engine:
            results = settings.search(lines, 1, prefixes=prefixes, engine=engine)
        for (number, what), result in zip(asked, results, strict=True):
            note = conversation.answer(result, words)[1] if what["chat"] else ""
            self._send(("done", number, _plain(result)["translations"][0] | {"cut": result.cut, "note": note}))

    def _look(self, name: str, run: Run, what: dict[str, Any]) -> bytes:
        """The parts that were asked for, and the names of all, in JSON."""
        from seq2see.lens.heads import Head
        from seq2see.look import page

        asked = (name, what["text"], what["to"], what["target"], *map(tuple, what["without"]), *what["prefix"])
        seen = self._looks.pop(asked, None)
        if seen is None:
            heads = [Head(*each) for each in what["without"]]
            engine = self._looking_engine(run)
            seen = page.Inside(run, what["text"], what["to"], what["target"], engine, heads, what["prefix"])
        self._looks[asked] = seen
        while len(self._looks) > 1 and sum(each.tokens for each in self._looks.values()) > self.LOOK_TOKENS:
            self._looks.popitem(last=False)
        found = {name: seen.part(name) for name in what["parts"]}
        return json.dumps({"names": seen.names, "parts": found}, ensure_ascii=False, allow_nan=False).encode()

    def _familiar(self, text: str) -> dict[str, float]:
        """The share that each run knows. Of those that know as much, the first needs fewest tokens to say it."""
        sources = {name: run.tokenizers.source for name, run in self._runs.items()}
        shares = {name: source.familiar(text) for name, source in sources.items()}
        tokens = {name: len(source.encode([text.strip()])[0]) for name, source in sources.items()}
        return {name: shares[name] for name in sorted(shares, key=lambda name: (-shares[name], tokens[name]))}

    @contextlib.contextmanager
    def _given_up(self, run: Run, number: int) -> Iterator[None]:
        """Ends a look that nobody waits for any more: at the next step of its search, or of its importance."""

        def check(*_: Any) -> None:
            if number in self._gone:
                raise GivenUpError

        check()
        engine, before = self._looking_engine(run), run.watch
        engine.watch = run.watch = check
        try:
            yield
        finally:
            engine.watch, run.watch = None, before

    @staticmethod
    def _looking_engine(run: Run) -> "TorchEngine":
        return run.engine("torch", "float32")  # type: ignore[return-value]

    @contextlib.contextmanager
    def _engine_for(
        self, run: Run, what: dict[str, Any], forced: bool, owners: list[int], lines: list[str]
    ) -> Iterator[Bounded]:
        """What the command line would take; ours gives up sentences that nobody waits for any more."""
        setup = self._setup
        if what.get("sampling"):
            with self._drawing(run, what["sampling"], None) as drawing:
                yield drawing
            return
        # The engines count forced words differently in a score: ours like any others.
        engine = run.engine("torch" if forced and setup.engine == "auto" else setup.engine, setup.precision)
        if not engine.name.startswith("torch"):
            yield Bounded(engine, setup.output_tokens)
            return
        searched = [owner for owner, line in zip(owners, lines, strict=True) if line.strip()]

        def given_up(step: "SearchStep") -> set[int]:
            return {place for place, owner in enumerate(searched) if owner in self._gone}

        ours: TorchEngine = engine  # type: ignore[assignment]
        ours.watch = given_up
        try:
            yield Bounded(ours, setup.output_tokens)
        finally:
            ours.watch = None

    @contextlib.contextmanager
    def _drawing(self, run: Run, sampling: dict[str, Any] | None, watch: "Watch | None") -> Iterator[Bounded]:
        """Our own engine, which draws its words or takes the likeliest, and is watched."""
        from seq2see.decoding import search

        engine = self._torch_engine(run)
        engine.choose, engine.watch = search.sampling(**sampling) if sampling else None, watch
        try:
            yield Bounded(engine, self._setup.output_tokens)
        finally:
            engine.choose = engine.watch = None

    def _torch_engine(self, run: Run) -> "TorchEngine":
        precision = self._setup.precision if self._setup.engine == "torch" else None
        return run.engine("torch", precision)  # type: ignore[return-value]


def _listener(run: Run) -> Run:
    """A run as conversations use it: the same engines, but of a line no more is read than training had."""
    listener = copy.copy(run)
    settings: Settings = conversation.settings_for(run.settings)
    listener.settings = settings
    return listener


def _plain(result: Result) -> dict[str, Any]:
    return {
        "translations": [
            {"text": each.text, "score": each.score, "probability": each.probability} for each in result.translations
        ],
        "source_tokens": len(result.source),
        "cut": result.cut,
    }


WARM_UP = 4
"""Ordinary texts that are translated while a model is loaded, to learn the speed of the engine."""


def _facts(run: Run, engine: Bounded, beam: int | None, output_tokens: int) -> Facts:
    """What is known of a model by its validation pairs, and by the time that a few of them take."""
    pairs = run.validation_pairs[:200]
    texts = [pair.source for pair in pairs] or ["a b c d e f g h"]
    sources = work.source_tokens(run, texts)
    targets = [len(ids) + 1 for ids in run.tokenizers.target.encode([pair.target for pair in pairs])]
    ratio = sum(targets) / sum(sources) if pairs else 1.0
    tokens, characters = sum(map(len, run.tokenizers.source.encode(texts))), sum(map(len, texts))
    width = beam or run.settings.decoding.beam

    def cost(tokens: int) -> int:
        return work.cost(tokens, width, ratio, run.settings.decoding, output_tokens)

    order = sorted(range(len(texts)), key=lambda place: sources[place])
    middle = order[max(0, len(order) // 2 - WARM_UP // 2) :][:WARM_UP]
    lines = run.tagged([texts[place] for place in middle], run.tags[0] if run.tags else None)
    begun = time.monotonic()
    run.search(lines, width, engine=engine)
    seconds = max(time.monotonic() - begun, 1e-3)
    rate = sum(cost(sources[place]) for place in middle) / seconds
    ordinary = cost(sources[order[len(order) // 2]])
    return Facts(engine.name, tokens / characters if characters else 1.0, ratio, ordinary, rate)


def main() -> None:
    """What such a process does until its pipe is closed. Ctrl-C and SIGTERM are for its parent to act on."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    gone: set[int] = set()
    messages = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what others print must not come between the answers

    def listen() -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                message = read(messages)
                if isinstance(message, tuple) and message[0] == "gone":
                    gone.add(message[1])
                else:
                    inbox.put(message)
        os._exit(0)

    def send(message: tuple[Any, ...]) -> None:
        try:
            answers.write(framed(message))
            answers.flush()
        except OSError:
            os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    try:
        setup = inbox.get()
        with contextlib.suppress(OSError):
            os.nice(setup.niceness)
        worker = Worker(setup, send, gone)
    except Exception as problem:
        line = " ".join(str(problem).split())
        if not isinstance(problem, SeqError):
            report(problem, "loading a model")
            line = f"{', '.join(setup.runs)}: the model cannot be loaded ({type(problem).__name__}: {line[:200]})"
        send(("failed", line))
        return
    while True:
        _, key, jobs = inbox.get()
        worker.do(key, jobs)
        gone.clear()
        send(("end",))
