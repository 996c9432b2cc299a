"""Trials: train with other settings besides the suggested ones, and use them if they are significantly better.

The suggested settings (the default) train in the run folder itself, the others (the challengers) in `RUN/trials/NAME`,
each a run folder of its own. All are trained up to the same step, of the same learning rate schedule, and ranked by the
validation loss of a sentence, which does not depend on how it is split into tokens. If there are few pairs, or the user
set the minutes for trials, the best challenger and the default are then trained to the end and compared once more,
unless the default is significantly better already. Budgets are counted in steps, so that every machine makes the same
trials. The winner continues from its own checkpoint; an interrupted trial resumes like any other training.
"""

import json
import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from seq2see import config, machine, storage
from seq2see.config import Overlay, Settings
from seq2see.display.wording import translated
from seq2see.errors import DataError, RunError, SettingError
from seq2see.evaluation import validation
from seq2see.session import candidates, finish, resume, suggest
from seq2see.session import prepare as preparation
from seq2see.session.candidates import DEFAULT, CandidateResult
from seq2see.session.prepare import Chosen
from seq2see.session.request import Prepared, Said, Watch

FOLDER, PLAN = "trials", "plan.json"
STAYING = {"manifest.json", storage.LOCK}
"""Files that stay in the folder of the winner when its others move to the run folder."""
FEW_PAIRS = 20_000
"""Number of training pairs below which the best challenger is trained to the end after the comparison at `EARLY`, so
that trials may double the training time. With more pairs, this is done only if the user set the minutes for trials. A
challenger is a candidate other than the suggested settings.
"""
EARLY, EARLY_OF_MANY = 0.25, 0.1
"""Share of all steps after which candidates are compared: the first with fewer than `FEW_PAIRS` pairs or if the user
set the minutes for trials, the second otherwise.
"""
MOST_CHALLENGERS = 3
UNRELATED = {
    *("seed", "alignment_weight", "micro_batch_tokens", "precision", "deterministic", "log_every", "keep"),
    *("validate_every", "patience", "metric"),
}
"""Training settings that the user may set without disabling the trials; not a time limit, which each would exhaust."""


@dataclass(frozen=True)
class Challenger:
    """Settings that are compared with the suggested ones."""

    name: str
    overlay: Overlay


def challengers(
    tokenizers: Sequence[Mapping[str, Any]], settings: Settings, yours: set[str], minutes: float | None
) -> list[Challenger]:
    """Return the settings to try: other tokenizers and, if the user allows time, other sizes and regularisation.

    Users who set data, model or training get no trials unless they ask for them; no trial changes what they have set.
    """
    own = {key for key in yours if key.split(".")[0] != "decoding" and key.split(".")[1] not in UNRELATED}
    if minutes == 0 or (own and minutes is None) or settings.model.architecture != "transformer":
        return []
    found = []
    for data in tokenizers[1:]:
        kinds = dict.fromkeys((data["source_tokenizer"], data["target_tokenizer"]))  # one if both sides have the same
        overlay = {"data": data, "model": {"tie": "all" if data["shared"] else "decoder"}}
        found.append(Challenger("-to-".join(kinds), overlay))
    if minutes is not None:
        found += _more(settings)
    changed = [(each, _changed(settings, each.overlay)) for each in found]
    kept = [each for each, keys in changed if keys and not keys & yours]
    return kept if minutes is not None else kept[:MOST_CHALLENGERS]


def _more(settings: Settings) -> list[Challenger]:
    """Return further candidates to train if there is time; docs/log.md lists the gain of each on small corpora."""
    model, training = settings.model, settings.training
    dropout, rate, width = model.dropout, training.learning_rate, model.d_model
    wider, narrower = 16 * round(width * 1.5 / 16), max(32, 16 * round(width / 1.5 / 16))
    return [
        Challenger("more-dropout", {"model": {"dropout": round(min(0.5, dropout + 0.1), 2)}}),
        Challenger("more-agreement", {"training": {"agreement": max(1.0, 2 * training.agreement)}}),
        Challenger(
            "wider", {"model": {"d_model": wider, "d_ff": 4 * wider}, "training": {"learning_rate": rate / 1.5}}
        ),
        Challenger("less-dropout", {"model": {"dropout": round(max(0.05, dropout - 0.1), 2)}}),
        Challenger("more-decay", {"training": {"weight_decay": max(0.3, 2 * training.weight_decay)}}),
        Challenger("narrower", {"model": {"d_model": narrower, "d_ff": 4 * narrower}}),
        Challenger("lower-rate", {"training": {"learning_rate": rate / 2}}),
    ]


def _changed(settings: Settings, overlay: Overlay) -> set[str]:
    """Return the names of the settings that an overlay changes."""
    tree = asdict(settings)
    return {f"{section}.{key}" for section, new in overlay.items() for key in new if tree[section][key] != new[key]}


def prepare(
    folder: Path,
    prepared: Prepared,
    chosen: Chosen,
    minutes: float | None,
    write_corpus: Callable[[Path, Settings], Prepared],
    watch: Watch,
) -> None:
    """Make a run folder for each challenger, and write the plan of the trials, inside a run folder that is being made.

    Nothing is done if there is no challenger, if there are too few validation pairs (`validation.FEWEST_TO_COMPARE`),
    or if these are also trained on. A challenger is left out, with a message, if its settings contradict each other, if
    its model does not fit into memory, or if many pairs that the suggested settings keep are too long for its
    tokenizers.

    Args:
        prepared: The run folder with the suggested settings.
        chosen: The suggested settings as they were before the corpus was tokenised, and the tokenizers that suit it. A
            challenger with other tokenizers starts from these settings: alignment loss and limit of output lengths
            depend on its tokens.
        write_corpus: Function that writes a run folder with other tokenizers.
    """
    tried = challengers(chosen.candidates, prepared.settings, prepared.yours, minutes)
    too_few = len(prepared.valid) < validation.FEWEST_TO_COMPARE
    if not tried or too_few or "validated_on_training_pairs" in prepared.facts:
        return
    settings, steps, made = prepared.settings, prepared.settings.training.max_steps, {}
    for each in tried:
        try:
            _make_folder(folder, folder / FOLDER / each.name, prepared, chosen.settings, each.overlay, write_corpus)
            made[each.name] = sorted(_changed(settings, each.overlay))
        except (DataError, SettingError) as problem:
            storage.remove(folder / FOLDER / each.name)
            watch(Said(f"trials: {each.name} is not tried: {problem}"))
    if not made:
        storage.remove(folder / FOLDER)
        return
    few = prepared.facts["pairs"] < FEW_PAIRS
    plan = {
        "challengers": made,
        "compare_after": max(1, round(steps * (EARLY if few or minutes else EARLY_OF_MANY))),
        "to_the_end": few or bool(minutes),
        "minutes": minutes or 0,
        "reasons": prepared.reasons,
        "yours": sorted(prepared.yours),
    }
    storage.write_text(folder / FOLDER / PLAN, json.dumps(plan, indent=1))


def _make_folder(
    folder: Path,
    place: Path,
    prepared: Prepared,
    chosen: Settings,
    overlay: Overlay,
    write_corpus: Callable[[Path, Settings], Prepared],
) -> None:
    """Make the run folder `place` of a challenger, inside that of the suggested settings; see `prepare` for errors."""
    other = config.resolve(asdict(chosen if "data" in overlay else prepared.settings), overlay)
    preparation.check_memory(other, machine.pick_device())
    place.mkdir(parents=True)
    if "data" in overlay:
        facts = write_corpus(place, other).facts
        facts |= {name: fact for name, fact in prepared.facts.items() if name == "corpus_bytes"}
        counts = ((each["pairs"], each["validation_pairs"]) for each in (facts, prepared.facts))
        for kept, all_of_them in zip(*counts, strict=True):
            if preparation.MANY * (all_of_them - kept) > all_of_them:
                raise DataError(
                    f"{all_of_them - kept:,} of {all_of_them:,} pairs are longer than data.max_length = "
                    f"{other.data.max_length} of its tokens"
                )
    else:
        nothing_else = shutil.ignore_patterns(FOLDER, storage.LOCK)
        shutil.copytree(folder, place, ignore=nothing_else, copy_function=_link_or_copy, dirs_exist_ok=True)
        config.write_toml(other, place / "settings.toml")
        facts = prepared.facts
    storage.write_manifest(place, facts)


def _link_or_copy(source: str, target: str) -> None:
    """Make `target` a hard link to the file `source`, or a copy where the file system has no hard links.

    No file of a prepared run folder is written to: whatever changes is replaced by a new file.
    """
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def is_better(one: CandidateResult, other: CandidateResult, lower_is_better: bool) -> bool:
    """Return whether a candidate is significantly better than another by the loss, and not worse by the metric."""
    if not validation.are_lower(one.losses, other.losses):
        return False
    if one.score is None or other.score is None:
        return True
    return one.score <= other.score if lower_is_better else one.score >= other.score


def decide(folder: Path, prepared: Prepared, overlays: list[Overlay], watch: Watch, alone: bool) -> Prepared:
    """Run the planned trials of a run folder, move the files of the winner into it, and return its contents.

    Args:
        overlays: The user's settings.
        alone: Whether a single process trains; several processes do no trials.

    Raises:
        Interrupted: A signal asked for a stop; `train` with `resume` continues the trials.
    """
    home = folder / FOLDER
    if not (home / PLAN).is_file():  # an interruption of `remove`
        storage.remove(home)
        return prepared
    plan = read_plan(home / PLAN)
    prepared = replace(prepared, reasons=plan["reasons"], yours={*plan["yours"], *prepared.yours})
    if "winner" not in plan:
        if not alone:
            watch(Said("no trials of other settings: several processes train one model"))
            remove(folder)
            return prepared
        plan |= _compare(folder, prepared, plan, watch)
        if plan["winner"] != DEFAULT:
            plan["files"] = sorted({path.name for path in (home / plan["winner"]).iterdir()} - STAYING)
        storage.write_text(home / PLAN, json.dumps(plan))
        move_winner(folder)
        prepared = replace(resume.reopen(folder, overlays), reasons=prepared.reasons, yours=prepared.yours)
    if plan["winner"] != DEFAULT:
        keys = {*plan["challengers"][plan["winner"]]}
        tried = f"the best of {len(plan['challengers']) + 1} settings in trials"
        rows = [name for name, its_keys in suggest.ROWS.items() if keys.intersection(its_keys)]
        prepared = replace(prepared, reasons=prepared.reasons | dict.fromkeys(rows, tried))
    remove(folder)
    return prepared


def move_winner(folder: Path) -> None:
    """Move the files of the winner, if there is one, into the run folder, and record the result in its manifest.

    If an interruption leaves the move incomplete, another call completes it. Until then the run folder is not readable.
    """
    plan = read_plan(path) if (path := folder / FOLDER / PLAN).is_file() else {}
    if "winner" not in plan:
        return
    if plan["winner"] == DEFAULT:
        facts = storage.read_manifest(folder)
    else:
        winner = folder / FOLDER / plan["winner"]
        facts = storage.read_manifest(winner)
        _replace_files(folder, winner, plan["files"])
    storage.write_manifest(folder, facts | {"trials": plan["result"]})


def _replace_files(folder: Path, winner: Path, names: Collection[str]) -> None:
    """Replace all files of a run folder by those of the winner, which has, or had, files of these names.

    Files that only the suggested settings have are deleted, too: a second tokenizer, for example, would not fit a
    winner whose sides share one.
    """
    for path in folder.iterdir():
        if path.name not in {FOLDER, *STAYING, *names}:
            storage.remove(path)
    for path in sorted(winner.iterdir()):
        if path.name not in STAYING:
            if path.is_dir():
                storage.remove(folder / path.name)
            path.replace(folder / path.name)


def remove(folder: Path) -> None:
    """Delete the trials of a run folder. The plan goes first: it cannot be followed once other files are deleted."""
    (folder / FOLDER / PLAN).unlink(missing_ok=True)
    storage.remove(folder / FOLDER)


def read_plan(path: Path) -> dict[str, Any]:
    """Return the plan of the trials of a run folder; raise a RunError if it is damaged."""
    try:
        plan = storage.read_json(path)
        names, wanted = plan["challengers"], plan.get("winner", DEFAULT)
        moving = [] if wanted == DEFAULT else plan["files"]
        are_names = all(Path(name).name == name != ".." for name in (*names, *moving))
        early = [CandidateResult(**each).name for each in plan.get("early", {}).values()]
        whole = type(plan["compare_after"]) is int and isinstance(plan["reasons"], dict)
        if not whole or not are_names or not {*early, wanted} <= {DEFAULT, *names}:
            raise ValueError(wanted)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RunError(f"{path}: damaged. Train anew with --force") from None
    return dict(plan)


def _compare(folder: Path, prepared: Prepared, plan: dict[str, Any], watch: Watch) -> dict[str, Any]:
    """Train the candidates as far as planned; return the winner's name and the results of all, for the manifest.

    The first comparison is stored in the plan, because some candidates are trained further after it.
    """
    settings, names = prepared.settings, [DEFAULT, *plan["challengers"]]
    places = {name: folder if name == DEFAULT else folder / FOLDER / name for name in names}
    early, steps = plan["compare_after"], settings.training.max_steps
    watch(Said(f"trials: {len(names)} settings, {early:,} of {steps:,} steps each: {', '.join(names)}"))
    most = len(names) * early + (2 if plan["to_the_end"] else 1) * (steps - early)

    def forecast(seconds: float) -> None:
        """Report the maximum duration of all trials and the training, given the mean seconds per step."""
        long = finish.in_words(seconds * most)
        line = f"trials and training: at most {long} for {most:,} steps on this CPU, plus validations"
        watch(Said(f"{line}; --tune 0 makes no trials"))

    if "early" not in plan:
        found = candidates.train_all(places, early, watch, plan["minutes"], forecast)
        plan["early"] = {name: asdict(each) for name, each in found.items()}
        storage.write_text(folder / FOLDER / PLAN, json.dumps(plan))
    first = {name: CandidateResult(**each) for name, each in plan["early"].items()}
    lower = settings.training.metric in config.LOWER_IS_BETTER
    ranked = [each for each in first.values() if each.name != DEFAULT and each.losses]
    ranked.sort(key=lambda each: each.loss)
    last, winner = first, DEFAULT
    if plan["to_the_end"] and ranked and not is_better(first[DEFAULT], ranked[0], lower):
        finalists = {name: places[name] for name in (DEFAULT, ranked[0].name)}
        watch(Said(f"trials: {ranked[0].name} and {DEFAULT} are trained to the end"))
        last = candidates.train_all(finalists, steps, watch, 0)
        ranked = [last[ranked[0].name]]
    if ranked and is_better(ranked[0], last[DEFAULT], lower):
        winner = ranked[0].name
    latest = first | last
    chosen = latest[winner]
    whole = chosen.cost * steps / max(1, chosen.step)  # it may stop early
    rows = {
        name: {"changes": plan["challengers"].get(name, []), "step": each.step, "loss": round(each.loss, 4)}
        | ({} if each.score is None else {settings.training.metric: each.score})
        for name, each in latest.items()
        if each.losses
    }
    result = {
        "winner": winner,
        "candidates": rows,
        "relative_cost": round(sum(each.cost for name, each in latest.items() if name != winner) / whole, 2),
        "seconds": round(sum(each.seconds for name, each in latest.items() if name != winner), 1),
    }
    why = "no other setting is significantly better"
    if winner != DEFAULT:
        why = "significantly better on the validation set"
    told = ((each, translated(f"step {each.step:,}")) for each in latest.values() if each.losses)
    losses = ", ".join(f"{each.name} {each.loss:.3f} ({step})" for each, step in told)
    watch(Said(f"trials: {winner} won ({why}); mean validation loss per sentence: {losses}"))
    return {"winner": winner, "result": result}
