"""The engine in a process of its own: it receives jobs through one pipe and sends answers through another.

The process may be slow, crash or be killed: the server only waits for its pipe. It does not use the network. Messages
are pickled. A thread of the engine reads them, so that a job can be cancelled while it is processed.

    in      Setup, then ("do", Key, [(number, Asked), ...]) for jobs and ("gone", number) for a cancelled job
    out     each after its length: ("ready", {model: Facts}) or ("failed", line), then for each job
            ("token", number, event)..., ("done", number, answer) or ("refused", number, status, line, details);
            for each ("do", ...), ("end",)

On a GPU, PyTorch usually searches texts in slots (`decoding/continuous.py`): the jobs of another "do" with the same key
join those being processed, and "end" is sent, once for each "do", when all of them are done.
"""

import contextlib
import copy
import json
import os
import pickle
import queue
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from seq2see import conversation
from seq2see.decoding import terms, translator
from seq2see.decoding.hypothesis import Hypothesis
from seq2see.decoding.translator import Bounded
from seq2see.errors import SeqError
from seq2see.evaluation import confidence
from seq2see.machine import framed, has_torch
from seq2see.run import Run
from seq2see.serve.jobs import Asked, Facts, Key, Setup, cost, source_tokens
from seq2see.serve.log import report

if TYPE_CHECKING:
    from seq2see.decoding.continuous import SlotSearch
    from seq2see.decoding.search import SearchStep, Watch
    from seq2see.decoding.torch_engine import TorchEngine
    from seq2see.look.page import Inside

WARM_UP = 4
"""Maximum number of validation texts of about median length that a new engine translates to measure its speed."""


class GivenUpError(Exception):
    """Raised to end a look, patch or contrast whose client no longer waits for the answer."""


Jobs = list[tuple[int, Asked]]


class Inbox:
    """The messages from the server, except cancellations, in the order of their arrival."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._next: Any = None
        self.put = self._queue.put
        self.joined = 0
        """Number of messages whose jobs `more` has returned since this was last set to 0."""

    def get(self) -> Any:
        """Wait for the next message, and return it."""
        found, self._next = self._next, None
        return found or self._queue.get()

    @property
    def is_empty(self) -> bool:
        return self._next is None and self._queue.empty()

    def more(self, key: Key) -> Jobs:
        """Remove and return the jobs of messages that have arrived, up to the first message with another key."""
        found: Jobs = []
        while True:
            with contextlib.suppress(queue.Empty):
                self._next = self._next or self._queue.get_nowait()
            if self._next is None or self._next[1] != key:
                return found
            found += self._next[2]
            self._next = None
            self.joined += 1


class Worker:
    """Loads models, and answers jobs by `send`, those with equal keys together; a job whose number is in `gone` is
    cancelled.
    """

    LOOK_TOKENS = 256
    """Maximum total of source and target tokens of the translations whose activations are kept in memory, since a page
    requests their parts one by one; the latest is kept whatever its size. For a base model this is more than a hundred
    megabytes of activations.
    """

    def __init__(
        self,
        setup: Setup,
        send: Callable[[tuple[Any, ...]], None],
        gone: Collection[int],
        more: Callable[[Key], Jobs] = lambda key: [],
    ) -> None:
        self._setup = setup
        self._send = send
        self._gone = gone
        self._more = more
        self._runs = {name: Run(folder) for name, folder in setup.runs.items()}
        self._looks: OrderedDict[tuple[Any, ...], Inside] = OrderedDict()
        self._told: set[int] = set()
        """Numbers of streamed jobs for which a token has been sent; repeating such a job would send it twice."""
        self._without_slots: set[Run] = set()
        """Runs whose search in slots has failed, for lack of memory for example; they are translated in batches."""
        facts = {}
        for name, run in self._runs.items():
            first = run.tagged(["a"], run.tags[0] if run.tags else None)
            taken = self._torch_engine(run) if setup.inside else self._engine_for(run, Asked(first), [0], first)
            if setup.inside and run.settings.model.attention:
                _ = run.alignment_method  # chosen once for a run, which may take half a minute
            with taken as engine:
                run.search(first, engine=engine)  # the first search takes longest
                facts[name] = _facts(run, engine, 1 if setup.inside else None, setup.output_tokens)
            if (search := self._slot_search(run, Key("translate", name), Asked(first))) is not None:
                search.warm_up()
                in_slots = Bounded(search, setup.output_tokens)  # type: ignore[arg-type]  # it is only searched with
                facts[name] = _facts(run, in_slots, None, setup.output_tokens)
                facts[name] = facts[name]._replace(slots=search.most)
        send(("ready", facts))

    def do(self, key: Key, jobs: Jobs) -> None:
        """Answer jobs that are not cancelled; if they fail together, try each alone, unless a token of it was sent."""
        jobs = [job for job in jobs if job[0] not in self._gone]
        try:
            if jobs:
                run = self._runs[key.model]
                match key.kind:
                    case "translate":
                        search = self._slot_search(run, key, jobs[0][1])
                        if search is None:
                            self._translate(run, key, jobs)
                        else:
                            self._translate_in_slots(run, key, jobs, search)
                    case "chat":
                        self._chat(run, key, jobs)
                    case "stream":
                        self._stream(run, jobs)
                    case "look":
                        self._look(run, jobs[0][0], jobs[0][1])
                    case "detect":
                        for number, asked in jobs:
                            self._send(("done", number, [self._familiar(text) for text in asked.lines]))
        except Exception as problem:
            told = self._told
            for number, asked in jobs:
                if len(jobs) > 1 and number not in told:
                    self.do(key, [(number, asked)])
                else:
                    self._refuse(number, problem)

    def _refuse(self, number: int, problem: Exception) -> None:
        if isinstance(problem, SeqError):
            self._send(("refused", number, 400, " ".join(str(problem).split()), dict(problem.details)))
        elif not isinstance(problem, GivenUpError):
            report(problem, "the engine")
            self._send(("refused", number, 500, "the engine failed on this text; the log of the server says where", {}))

    def _translate(self, run: Run, key: Key, jobs: Jobs) -> None:
        lines = [line for _, asked in jobs for line in run.tagged(asked.lines, asked.to)]
        prefixes = [asked.prefix for _, asked in jobs for _ in asked.lines] if key.forced else None
        n_best = max(asked.n_best for _, asked in jobs)
        # Terms take several searches of different sentences, of which none is given up.
        owners = [number for number, asked in jobs for _ in asked.lines] if not key.has_terms else []
        with self._engine_for(run, jobs[0][1], owners, lines[: len(owners)]) as engine:
            if key.has_terms:
                found = [each for _, asked in jobs for each in asked.terms]
                given = [line for _, asked in jobs for line in asked.lines]
                tags = [len(line) - len(untagged) for line, untagged in zip(lines, given, strict=True)]
                rest = iter(
                    terms.translate(
                        engine, run.tokenizers, run.settings, lines, found,
                        beam=key.beam, n_best=n_best, prefixes=prefixes, shifts=tags,
                    )
                )  # fmt: skip
            else:
                rest = iter(run.search(lines, key.beam, n_best, prefixes, engine))
        for number, asked in jobs:
            results = [next(rest) for _ in asked.lines]
            if number in self._gone:
                continue
            results = [replace(each, translations=each.translations[: asked.n_best]) for each in results]
            self._send(("done", number, (engine.name, self._answer(run, asked, results))))

    def _answer(self, run: Run, asked: Asked, results: list[translator.Result]) -> list[dict[str, Any]]:
        """Return the results of a job as JSON objects, with what `Asked.alignments` and `Asked.familiar` ask for."""
        kept = run.manifest.get("confidence")
        calibration = None if kept is None else confidence.from_json(kept)
        answer = [_plain(each, calibration) for each in results]
        if asked.alignments:
            for each, links in zip(answer, run.align(asked.lines, results, asked.to), strict=True):
                for translation, link in zip(each["translations"], links, strict=True):
                    translation["alignment"] = link.json()
        if asked.familiar:
            for each, line in zip(answer, asked.lines, strict=True):
                each["familiar"] = run.tokenizers.source.familiar(line)
        return answer

    def _slot_search(self, run: Run, key: Key, asked: Asked) -> "SlotSearch | None":
        """Return the search that jobs with this key can join at any time (in slots); None to search in batches."""
        setup = self._setup
        if setup.inside or asked.sampling or key.has_terms or run in self._without_slots:
            return None
        engine = run.engine(setup.engine, setup.precision)
        if not engine.name.startswith("torch"):
            return None
        decoding = run.settings.decoding if key.beam is None else replace(run.settings.decoding, beam=key.beam)
        ours: TorchEngine = engine  # type: ignore[assignment]
        return ours.slot_search(decoding, setup.in_slots)

    def _translate_in_slots(self, run: Run, key: Key, jobs: Jobs, search: "SlotSearch") -> None:
        """Translate jobs, and jobs with the same key that arrive meanwhile; each is answered when its texts are done.

        A cancelled job frees its slots. If the search fails, jobs of this run are from then on translated in batches.
        """
        plans: dict[int, tuple[Asked, translator.SearchPlan]] = {}
        found: dict[int, dict[int, list[Hypothesis]]] = {}
        try:
            while jobs or search:
                for number, asked in jobs:
                    try:
                        plans[number] = asked, self._enter(run, key, number, asked, search)
                        found[number] = {}
                    except Exception as problem:
                        self._refuse(number, problem)
                jobs = []
                for (number, place), hypotheses in search.advance():
                    found[number][place] = hypotheses
                for number in [number for number, (_, plan) in plans.items() if len(found[number]) == len(plan.tasks)]:
                    asked, plan = plans.pop(number)
                    results = plan.results([each for _, each in sorted(found[number].items())])
                    self._send(("done", number, (search.name, self._answer(run, asked, results))))
                jobs = [job for job in self._more(key) if job[0] not in self._gone]
                if self._gone:
                    search.drop(lambda name: name[0] in self._gone)
                    plans = {number: plan for number, plan in plans.items() if number not in self._gone}
        except Exception as problem:  # all of them are searched without slots
            report(
                problem, f"continuous batching: {run.folder.name} translates in separate batches from now on, slower"
            )
            self._without_slots.add(run)
            search.forget()
            for number, (asked, _) in plans.items():
                self.do(key, [(number, asked)])

    def _enter(self, run: Run, key: Key, number: int, asked: Asked, search: "SlotSearch") -> translator.SearchPlan:
        """Add the texts of a job to a search in slots, and return the plan that turns its hypotheses into results."""
        lines = run.tagged(asked.lines, asked.to)
        prefixes = [asked.prefix] * len(lines) if key.forced else None
        plan = translator.SearchPlan.of(
            run.tokenizers, run.settings, lines, beam=key.beam, n_best=asked.n_best, prefixes=prefixes
        )
        for place, task in enumerate(plan.tasks):
            search.add((number, place), replace(task, limit=min(task.limit, self._setup.output_tokens)))
        return plan

    def _chat(self, run: Run, key: Key, jobs: Jobs) -> None:
        words = conversation.words_for(run)
        heard = {number: conversation.hear(run, asked.lines[0], words) for number, asked in jobs}
        searched = [(number, asked) for number, asked in jobs if not heard[number][1]]
        answers = {number: ("", note) for number, (_, note) in heard.items() if note}
        if searched:
            lines = [run.tagged([heard[number][0]], asked.to)[0] for number, asked in searched]
            with self._engine_for(run, searched[0][1], [number for number, _ in searched], lines) as engine:
                results = _in_conversation(run).search(lines, key.beam, engine=engine)
            for (number, _), result in zip(searched, results, strict=True):
                if result.translations:
                    answers[number] = conversation.answer(result, words)
        for number, (said, note) in answers.items():
            self._send(("done", number, {"answer": said, "note": note}))

    def _stream(self, run: Run, jobs: Jobs) -> None:
        """Send each token when it is chosen: by greedy search, or by sampling for a job that is processed alone."""
        searched: Jobs = []
        lines: list[str] = []
        words = conversation.words_for(run)
        for number, asked in jobs:
            line, note = conversation.hear(run, asked.lines[0], words) if asked.chat else (asked.lines[0], "")
            if note or not line.strip():
                nothing = {"text": "", "score": 0.0, "probability": 1.0, "cut": False, "note": note}
                self._send(("done", number, nothing))
            else:
                searched.append((number, asked))
                lines.append(run.tagged([line], asked.to)[0])
        if not searched:
            return
        tokens: list[list[int]] = [[] for _ in searched]
        self._told = told = set()
        target = run.tokenizers.target

        def tell(step: "SearchStep") -> set[int]:
            for row, place in enumerate(step.sentences):
                token = int(step.tokens_BC[row, 0])
                tokens[place].append(token)
                event = {"token": target.pieces([token])[0], "text": target.decode(tokens[place])}
                told.add(searched[place][0])
                self._send(("token", searched[place][0], event))
            return {place for place, (number, _) in enumerate(searched) if number in self._gone}

        first = searched[0][1]
        prefixes = [asked.prefix for _, asked in searched]
        with self._torch_engine(run, first.sampling, tell) as engine:
            results = (_in_conversation(run) if first.chat else run).search(
                lines, 1, prefixes=prefixes if any(prefixes) else None, engine=engine
            )
        for (number, asked), result in zip(searched, results, strict=True):
            note = conversation.answer(result, words)[1] if asked.chat else ""
            self._send(("done", number, _plain(result)["translations"][0] | {"cut": result.cut, "note": note}))

    def _look(self, run: Run, number: int, asked: Asked) -> None:
        """Send JSON: the result of a patch or contrast, else the requested parts of a look and the names of all parts.

        A cancelled job ends at the next step of its search, or of the computation of importance.
        """

        def check(*_: Any) -> None:
            if number in self._gone:
                raise GivenUpError

        engine: TorchEngine = run.engine("torch", "float32")  # type: ignore[assignment]
        before = run.watch
        engine.watch = run.watch = check
        try:
            seen = self._inside(run, engine, asked, asked.lines[0])
            if asked.patch is not None:
                found = seen.patch(self._inside(run, engine, asked, asked.lines[1]), **asked.patch)
            elif asked.contrast is not None:
                found = seen.contrast(**asked.contrast)
            else:
                found = {"parts": {name: seen.part(name) for name in asked.parts}, "names": seen.names}
        finally:
            engine.watch, run.watch = None, before
        self._send(("done", number, json.dumps(found, ensure_ascii=False, allow_nan=False).encode()))

    def _inside(self, run: Run, engine: "TorchEngine", asked: Asked, line: str) -> "Inside":
        """Return the recorded activations of the translation of a line, from an earlier job if they are still kept."""
        from seq2see.lens.heads import Head
        from seq2see.look.page import Inside

        key = (run.folder, line, asked.to, asked.target, *asked.without, *asked.first_tokens)
        seen = self._looks.pop(key, None)
        if seen is None:
            heads = [Head(*each) for each in asked.without]
            seen = Inside(run, line, asked.to, asked.target, engine, heads, asked.first_tokens)
        self._looks[key] = seen
        while len(self._looks) > 1 and sum(each.tokens for each in self._looks.values()) > self.LOOK_TOKENS:
            self._looks.popitem(last=False)
        return seen

    def _familiar(self, text: str) -> dict[str, float]:
        """Return, by name of run, the share of a text that its source tokenizer finds familiar (`Tokenizer.familiar`),
        highest first; of equal shares, that of the tokenizer that needs the fewest tokens is first.
        """
        sources = {name: run.tokenizers.source for name, run in self._runs.items()}
        shares = {name: source.familiar(text) for name, source in sources.items()}
        tokens = {name: len(source.encode([text.strip()])[0]) for name, source in sources.items()}
        return {name: shares[name] for name in sorted(shares, key=lambda name: (-shares[name], tokens[name]))}

    @contextlib.contextmanager
    def _engine_for(self, run: Run, asked: Asked, owners: list[int], lines: list[str]) -> Iterator[Bounded]:
        """Yield the PyTorch engine for sampling and, if the engine is `auto`, for a prefix; else the configured engine.

        PyTorch stops searching for a line when its job, whose number is in `owners`, is cancelled.
        """
        setup = self._setup
        if asked.sampling:
            with self._torch_engine(run, asked.sampling) as sampling:
                yield sampling
            return
        # The engines count forced tokens differently in a score; only torch counts them like any others.
        ours_only = asked.prefix and setup.engine == "auto" and has_torch()
        engine = run.engine("torch" if ours_only else setup.engine, setup.precision)
        if not engine.name.startswith("torch"):
            yield Bounded(engine, setup.output_tokens)
            return
        searched = [owner for owner, line in zip(owners, lines, strict=True) if line.strip()]
        ours: TorchEngine = engine  # type: ignore[assignment]
        ours.watch = lambda step: {place for place, owner in enumerate(searched) if owner in self._gone}
        try:
            yield Bounded(ours, setup.output_tokens)
        finally:
            ours.watch = None

    @contextlib.contextmanager
    def _torch_engine(
        self, run: Run, sampling: dict[str, Any] | None = None, watch: "Watch | None" = None
    ) -> Iterator[Bounded]:
        """Yield the PyTorch engine, which samples if `sampling` is given, and calls `watch` at each step."""
        from seq2see.decoding import search

        precision = self._setup.precision if self._setup.engine == "torch" else None
        engine: TorchEngine = run.engine("torch", precision)  # type: ignore[assignment]
        engine.choose, engine.watch = search.sampling(**sampling) if sampling else None, watch
        try:
            yield Bounded(engine, self._setup.output_tokens)
        finally:
            engine.choose = engine.watch = None


def _in_conversation(run: Run) -> Run:
    """Return a copy of a run for conversations: the same engines, but lines are cut at `data.max_length` tokens."""
    copied = copy.copy(run)
    copied.settings = conversation.settings_for(run.settings)
    return copied


def _plain(result: translator.Result, calibration: confidence.Calibration | None = None) -> dict[str, Any]:
    translations: list[dict[str, Any]] = []
    for each in result.translations:
        translations.append({"text": each.text, "score": each.score, "probability": each.probability})
        if calibration is not None and (known := calibration.of(each)) is not None:
            translations[-1]["confidence"] = known._asdict()
        if each.terms:
            translations[-1]["terms"] = [term.json() for term in each.terms]
    return {
        "translations": translations,
        "source_tokens": len(result.source),
        "cut": result.cut,
    }


def _facts(run: Run, engine: Bounded, beam: int | None, output_tokens: int) -> Facts:
    """Return facts about a model, from up to 200 validation pairs and the time that translating a few of them takes."""
    pairs = run.validation_pairs[:200]
    texts = [pair.source for pair in pairs] or ["a b c d e f g h"]
    sources = source_tokens(run, texts)
    targets = [len(ids) + 1 for ids in run.tokenizers.target.encode([pair.target for pair in pairs])]
    ratio = sum(targets) / sum(sources) if pairs else 1.0
    width = beam or run.settings.decoding.beam
    costs = [cost(each, width, ratio, run.settings.decoding, output_tokens) for each in sources]
    order = sorted(range(len(texts)), key=lambda place: sources[place])
    middle = order[max(0, len(order) // 2 - WARM_UP // 2) :][:WARM_UP]
    lines = run.tagged([texts[place] for place in middle], run.tags[0] if run.tags else None)
    begun = time.monotonic()
    run.search(lines, width, engine=engine)
    rate = sum(costs[place] for place in middle) / max(time.monotonic() - begun, 1e-3)
    ordinary = costs[order[len(order) // 2]]
    return Facts(engine.name, ratio, ordinary, rate)


def main() -> None:
    """Load the models, then process jobs until the pipe is closed; the server handles Ctrl-C and SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    inbox = Inbox()
    gone: set[int] = set()
    messages = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what others print must not come between the answers

    def read_messages() -> None:
        with contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):  # the last one: the server has ended
            while True:
                message = pickle.load(messages)
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

    threading.Thread(target=read_messages, daemon=True).start()
    try:
        setup = inbox.get()
        with contextlib.suppress(OSError):
            os.nice(setup.niceness)
        worker = Worker(setup, send, gone, inbox.more)
    except Exception as problem:
        line = " ".join(str(problem).split())
        if not isinstance(problem, SeqError):
            report(problem, "loading a model")
            line = f"{', '.join(setup.runs)}: the model cannot be loaded ({type(problem).__name__}: {line[:200]})"
        send(("failed", line))
        return
    while True:
        _, key, jobs = inbox.get()
        inbox.joined = 0
        worker.do(key, jobs)
        if inbox.is_empty:  # else somebody may have left a job that has not begun
            gone.clear()
        for _ in range(1 + inbox.joined):
            send(("end",))
