"""The model of a run folder and its training loop, for trainings and for trials."""

from collections.abc import Generator
from pathlib import Path

import torch

from seq2see import bundle, config, machine
from seq2see.bundle import Bundle
from seq2see.evaluation import validation
from seq2see.kernels import threads
from seq2see.machine import Group, Stop
from seq2see.model.build import build
from seq2see.model.interface import Seq2Seq
from seq2see.run import error_unit
from seq2see.session.request import Prepared
from seq2see.training import loop
from seq2see.training.events import Event, Stepped, ThreadsChanged, Validated


def new_model(folder: Path, prepared: Prepared, device: torch.device) -> Seq2Seq:
    """Return a model with new weights, or with those that a fine-tuning starts from."""
    settings, tokenizers = prepared.settings, prepared.tokenizers
    torch.manual_seed(settings.training.seed)
    model = build(settings.model, len(tokenizers.source), len(tokenizers.target)).to(device)
    if "fine_tuning" in prepared.facts:
        bundle.read_weights(model, folder / "start.safetensors")
    return model


def run_loop(
    folder: Path, prepared: Prepared, model: Seq2Seq, micro_tokens: int, stop: Stop, group: Group
) -> Generator[Event]:
    """Train, on all ranks alike; yield the events of the loop.

    In one process on a CPU, the number of threads of a Transformer follows what other programs leave. That of an RNN
    does not, because its gradients depend on it: PyTorch splits their sums.
    """
    settings = prepared.settings
    is_on_cpu = next(model.parameters()).device.type == "cpu"
    may_change = is_on_cpu and group.alone and settings.model.architecture == "transformer"

    def validate() -> dict[str, float]:
        used = Bundle(settings, prepared.tokenizers, model.eval())
        with group.all_or_none(stop):
            mine = validation.measure(used, prepared.valid, prepared.valid_pairs, group.rank, group.world)
        return validation.scores(used, prepared.valid_pairs, error_unit(settings), group.from_all(mine))

    chosen = threads.sharing("training") if may_change else threads.fixed()
    with stop.listening(), machine.deterministic(settings.training.deterministic), chosen as ours:
        for event in loop.train(
            model,
            prepared.train,
            settings.training,
            window_pairs=settings.data.window_pairs,
            d_model=settings.model.d_model,
            run=folder,
            validate=validate,
            lower_is_better=settings.training.metric in config.LOWER_IS_BETTER,
            micro_tokens=micro_tokens,
            should_stop=stop.asked,
            group=group,
        ):
            yield event
            if isinstance(event, Validated):
                ours.begin("training")
            elif isinstance(event, Stepped) and ours.after(1):
                yield ThreadsChanged(event.step, ours.count, ours.reason)
