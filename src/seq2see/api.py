"""The Python API: `train` a run, `load` it, and ask it to translate, to show itself, to be scored."""

import platform
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from types import FrameType

import torch

import seq2see
from seq2see import bundle, config, presets
from seq2see.bundle import Bundle
from seq2see.config import Overlay, Settings
from seq2see.data import corpora
from seq2see.data.batches import Batches, make_batch
from seq2see.data.pair import Pair
from seq2see.data.store import Store
from seq2see.decoding import translator
from seq2see.decoding.search import Choose
from seq2see.decoding.translator import Result
from seq2see.errors import DataError, RunError, SettingError
from seq2see.evaluation import metrics, report
from seq2see.evaluation.metrics import Scores
from seq2see.lens import answers
from seq2see.lens.answers import Look
from seq2see.model.build import build, count_parameters
from seq2see.model.interface import Seq2Seq
from seq2see.prepare import Prepared, prepare, reopen
from seq2see.training import checkpoint, journal, loop
from seq2see.training.loss import smoothed_cross_entropy


@dataclass(frozen=True)
class Began:
    """The first event of a training: what is about to be trained, and on what."""

    folder: Path
    settings: Settings
    pairs: int
    validation_pairs: int
    dropped: dict[str, int]
    parameters: int
    vocabularies: tuple[int, int]
    device: str
    step: int
    """The step it goes on from; 0 for a new run."""


@dataclass(frozen=True)
class Said:
    """A line about what is being done."""

    line: str


Event = Said | Began | loop.Event
Watch = Callable[[Event], None]


class Run:
    """A trained model in its folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest = bundle.read_manifest(self.folder)

    @cached_property
    def bundle(self) -> Bundle:
        return bundle.load(self.folder, _device())

    @property
    def settings(self) -> Settings:
        return self.bundle.settings

    def translate(self, lines: Sequence[str], beam: int | None = None) -> list[str]:
        """The best translation of each line; an empty line stays empty."""
        return [result.text for result in self.search(lines, beam)]

    def search(
        self,
        lines: Sequence[str],
        beam: int | None = None,
        n_best: int = 1,
        prefixes: Sequence[str] | None = None,
        choose: Choose | None = None,
    ) -> list[Result]:
        """Translations with scores and tokens; `choose` samples instead (`decoding.search.sampling`)."""
        decoding = self.settings.decoding
        if beam is not None:
            decoding = replace(decoding, beam=beam)
        return translator.translate(self.bundle, lines, decoding, n_best=n_best, prefixes=prefixes, choose=choose)

    def look(self, sentence: str) -> Look:
        """Every attention of every layer and head in the translation of one sentence, as arrays with token labels."""
        return answers.look(self.bundle, sentence)

    def evaluate(
        self, pairs: Iterable[Pair], beam: int | None = None, n_best: int = 1, tokenize: str = "13a"
    ) -> tuple[Scores, list[Result]]:
        """Translate the sources and score the translations against targets and further references."""
        pairs = list(pairs)
        if not pairs:
            raise DataError("nothing to evaluate: no usable pair")
        results = self.search([pair.source for pair in pairs], beam, n_best)
        hypotheses = [[each.text for each in result.translations] for result in results]
        references = [[pair.target, *pair.references] for pair in pairs]
        return metrics.score(hypotheses, references, tokenize, unit=_unit(self.settings)), results


def load(folder: str | Path) -> Run:
    """Open a run folder."""
    return Run(folder)


def train(
    pairs: str | Path,
    out: str | Path | None = None,
    *,
    valid: str | Path | None = None,
    preset: str | None = None,
    config_file: str | Path | None = None,
    settings: Overlay | None = None,
    format: str | None = None,
    resume: bool = False,
    force: bool = False,
    watch: Watch = lambda event: None,
) -> Run:
    """Train a model on pairs; the corpus suggests all settings that are not given.

    Args:
        pairs: a file, two parallel files joined by a comma, or the name of a corpus.
        out: the run folder, `runs/<name of the corpus>` if not given.
        valid: pairs to validate on; some of `pairs` are held out if not given.
        preset: a named set of settings, such as "tutorial-small".
        config_file: settings in TOML, over the preset.
        settings: settings as a tree, over the file: `{"training": {"max_steps": 500}}`.
        resume: go on from the newest checkpoint in `out`.
        force: throw an earlier run in `out` away.
        watch: called with each event.

    Raises:
        KeyboardInterrupt: after Ctrl-C, once everything is saved.
    """
    overlays: list[Overlay] = []
    if preset:
        overlays.append(presets.preset(preset))
    if config_file:
        overlays.append(config.read_toml(Path(config_file)))
    if settings:
        overlays.append(settings)
    config.check_keys(*overlays)
    corpus = corpora.open_corpus(str(pairs), format)
    validation = None if valid is None else corpora.for_validation(str(valid), format)
    folder = Path(out) if out is not None else Path("runs") / corpus.name
    going_on = _clear_the_way(folder, resume, force)

    device = _device()
    if going_on:
        prepared = reopen(folder, overlays)
        if _is_finished(folder, prepared.settings):
            watch(
                Said(
                    f"{folder} is finished: nothing to resume. Train longer with --resume --set training.max_steps=..."
                )
            )
            return Run(folder)
    else:
        say: Callable[[str], None] = lambda line: watch(Said(line))  # noqa: E731
        prepared = prepare(folder, corpus, validation, overlays, lambda chosen: _check_memory(chosen, device), say)
    return _train(folder, prepared, device, watch)


def _train(folder: Path, prepared: Prepared, device: torch.device, watch: Watch) -> Run:
    settings, tokenizers = prepared.settings, prepared.tokenizers
    torch.manual_seed(settings.training.seed)
    model = build(settings.model, len(tokenizers.source), len(tokenizers.target)).to(device)
    facts = bundle.read_manifest(folder)
    newest = checkpoint.newest(folder / "checkpoints")
    step = int(newest.name.partition("-")[2]) if newest else 0
    facts |= {
        "state": "training",
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "device": _device_name(device),
        "versions": {"seq2see": seq2see.__version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    bundle.write_manifest(folder, facts)
    watch(
        Began(
            folder,
            settings,
            len(prepared.train),
            len(prepared.valid),
            {name: facts[f"dropped_{name}"] for name in ("empty", "too_long")},
            facts["parameters"],
            (len(tokenizers.source), len(tokenizers.target)),
            facts["device"],
            step,
        )
    )
    log = journal.Journal(folder, step)
    end: loop.Finished | None = None
    with _polite_stop() as should_stop:
        for event in loop.train(
            model,
            prepared.train,
            settings.training,
            window_pairs=settings.data.window_pairs,
            d_model=settings.model.d_model,
            run=folder,
            validate=lambda: _validate(Bundle(settings, tokenizers, model.eval()), prepared),
            lower_is_better=not metrics.higher_is_better(settings.training.metric),
            micro_tokens=settings.training.micro_batch_tokens or _micro_tokens(device),
            should_stop=should_stop,
        ):
            log.write(event)
            watch(event)
            if isinstance(event, loop.Finished):
                end = event
    log.close()
    assert end is not None
    if end.reason == loop.INTERRUPTED:
        raise KeyboardInterrupt
    facts |= {"state": "finished", "steps": end.step, "ended": end.reason, "trained_in_seconds": round(end.seconds, 1)}
    bundle.write_manifest(folder, facts)
    run = Run(folder)
    _write_report(run, prepared)
    return run


@torch.inference_mode()
def _validate(used: Bundle, prepared: Prepared) -> dict[str, float]:
    """Mean loss of a token without smoothing, and the metric that the settings name, by greedy search."""
    training = used.settings.training
    scores = {"loss": _mean_loss(used.model, prepared.valid, training.batch_tokens)}
    if training.metric != "loss":
        greedy = replace(used.settings.decoding, beam=1)
        results = translator.translate(used, [pair.source for pair in prepared.valid_pairs], greedy)
        references = [pair.target for pair in prepared.valid_pairs]
        scores[training.metric] = metrics.one(
            training.metric, [result.text for result in results], references, _unit(used.settings)
        )
    return scores


def _unit(settings: Settings) -> metrics.Unit:
    """What the error rate counts: letters where the target is cut into letters, else what stands between blanks."""
    return "characters" if settings.data.target_tokenizer == "characters" else "symbols"


def _mean_loss(model: Seq2Seq, pairs: Store, batch_tokens: int) -> float:
    device = next(model.parameters()).device
    total, count = 0.0, 0
    for indices, _ in Batches(pairs, batch_tokens, len(pairs), seed=0).one_epoch():
        batch = make_batch(pairs, indices).to(device)
        memory = model.encode(batch.source_N, batch.source_offsets)
        hidden_ND = model.decode(batch.inputs_N, batch.target_offsets, memory)
        loss = smoothed_cross_entropy(hidden_ND, model.output, batch.target_N)
        total, count = total + float(loss.plain), count + int(loss.tokens)
    return total / count


def _write_report(run: Run, prepared: Prepared) -> None:
    """`report.html`: curves, scores and samples of the finished model on its validation pairs."""
    from seq2see.lens import pictures

    shown = prepared.valid_pairs[:1000]
    scores, results = run.evaluate(shown)
    facts = run.manifest
    report.write(
        run.folder / "report.html",
        title=str(facts["corpus"]),
        facts={
            "pairs": f"{facts['pairs']:,}",
            "parameters": f"{facts['parameters']:,}",
            "steps": f"{facts['steps']:,}",
            "training time": in_words(facts["trained_in_seconds"]),
            "device": facts["device"],
            "ended": facts["ended"],
        },
        settings=asdict(run.settings),
        scores=[(score.name, score.value, score.signature) for score in scores],
        samples=[
            (pair.source, pair.target, result.text) for pair, result in list(zip(shown, results, strict=True))[:40]
        ],
        curves_svg=pictures.curves([row for row in journal.read(run.folder) if row.get("what", "model") == "model"]),
        data={
            "training pairs": f"{facts['pairs']:,}",
            "validation pairs": f"{facts['validation_pairs']:,}",
            "dropped: a side was empty": f"{facts['dropped_empty']:,}",
            "dropped: too long": f"{facts['dropped_too_long']:,}",
            "source tokens": f"{facts['source_tokens']:,} of {len(prepared.tokenizers.source):,} kinds",
            "target tokens": f"{facts['target_tokens']:,} of {len(prepared.tokenizers.target):,} kinds",
        },
    )


def in_words(seconds: float) -> str:
    """`754.2` -> `12 min 34 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (rest, "s")]
    shown = [f"{number} {unit}" for number, unit in parts if number]
    return " ".join(shown[:2]) or "0 s"


def _clear_the_way(folder: Path, resume: bool, force: bool) -> bool:
    """Make sure that `folder` may be written to; true where an earlier run in it goes on."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    if not folder.is_dir():
        raise RunError(f"{folder}: a file is in the way of the run folder")
    if not resume and not force:
        raise RunError(f"{folder}: exists already. Go on with --resume, or throw it away with --force")
    state = bundle.read_manifest(folder).get("state")  # refuses folders that are not ours, also under --force
    if resume and state != "preparing":
        return True
    shutil.rmtree(folder)
    return False


def _is_finished(folder: Path, settings: Settings) -> bool:
    """Whether a run has ended by a limit that still holds."""
    facts = bundle.read_manifest(folder)
    if facts["state"] != "finished":
        return False
    longer = settings.training.max_steps > facts["steps"] and facts["ended"].startswith("all")
    return not longer


@contextmanager
def _polite_stop() -> Iterator[Callable[[], bool]]:
    """Ctrl-C or SIGTERM asks for a stop after the current step; a second one does not wait."""
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"


def _micro_tokens(device: torch.device) -> int:
    """Tokens in one pass: what keeps a processor's caches, or a card, busy."""
    return 65_536 if device.type == "cuda" else 4096


def _check_memory(settings: Settings, device: torch.device) -> None:
    """Refuse a model whose weights, gradients and Adam's two means cannot fit, before anything is made."""
    data = settings.data
    weights = count_parameters(settings.model, data.source_vocabulary, data.target_vocabulary)
    needed = 16 * weights
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else _free_memory()
    if needed > free:
        raise SettingError(
            f"a model of {weights:,} weights needs {needed / 2**30:,.1f} GiB to train, "
            f"{free / 2**30:,.1f} GiB are free: choose a smaller preset (small, tiny) or a smaller model.d_model"
        )


def _free_memory() -> int:
    """Bytes that can be had without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        import os

        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
