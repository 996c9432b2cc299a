"""A training by many processes that torchrun has started: the first one prepares and reports, all of them train."""

from pathlib import Path

from seq2see import bundle
from seq2see.distributed import ranks
from seq2see.errors import OnlyHereError, SeqError
from seq2see.processes import Group
from seq2see.run import Run
from seq2see.session import train
from seq2see.session.request import Interrupted, Request
from seq2see.session.resume import reopen
from seq2see.stopping import Stop
from seq2see.training import loop
from seq2see.training.bad_numbers import NotFinite


def train_together(request: Request) -> Run:
    """Join the other processes; train as the first one, or along with it."""
    with ranks.joined() as group:
        ranks.check_restarts(request.resume, request.force)
        return train.start(request, group) if group.is_first else _train_along(group)


def _train_along(group: Group) -> Run:
    """Wait until there is something to train, and train it with the first process."""
    device = bundle.pick_device()
    place, micro_tokens = group.first_does(lambda: None)
    folder = Path(place)
    if not micro_tokens:  # the run is finished already
        return Run(folder)
    try:
        prepared = reopen(folder, [])
        model = train.new_model(folder, prepared, device)
    except SeqError as problem:
        where = f"process {group.rank}: all machines need to see the run folder under the same name"
        raise OnlyHereError(f"{problem} ({where})") from None
    stop = Stop(0.0 if group.alone else train.ECHO)
    try:
        *_, end = train.events(folder, prepared, model, micro_tokens, stop, group)
    except NotFinite:
        group.first_does(lambda: None)  # the first process reports it, and ends all
    if isinstance(end, loop.Finished) and end.reason == loop.INTERRUPTED:
        raise Interrupted(int(group.largest(stop.signal)))
    group.first_does(lambda: None)
    return Run(folder)
