"""Show the progress of a training in a notebook."""

from typing import Any

from seq2see.display import notebook
from seq2see.display.wording import translated
from seq2see.session.request import Began, Event, Said, Watch
from seq2see.training.events import Finished, Stepped, Trained, Validated


def progress() -> Watch:
    """Return a function that shows events of a training as a progress bar in a notebook, and does nothing elsewhere."""
    if not notebook.is_notebook():
        return lambda event: None
    bar = notebook.Bar()
    state: dict[str, Any] = {"total": 1, "step": 0, "loss": "", "validated": "", "said": ""}

    def show(event: Event) -> None:
        match event:
            case Said():
                state["said"] = translated(event.line)
            case Began():
                state.update(total=event.settings.training.max_steps, step=event.step, said="")
            case Stepped():
                state["step"] = event.step
            case Trained():
                state["loss"] = f"{translated('loss')} {event.loss:.3f}"
            case Validated():
                scores = "  ".join(f"{translated(name)} {value:.3f}" for name, value in event.scores.items())
                state["validated"] = f"{translated('validation')} {scores}"
            case Finished():
                reason = translated(event.reason)
                state.update(step=event.step, said=reason)
        text = "  ".join(filter(None, (state["loss"], state["validated"], state["said"])))
        bar.show(state["step"], state["total"], text, last=isinstance(event, Finished | Said))

    return show
