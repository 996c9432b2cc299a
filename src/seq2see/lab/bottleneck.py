"""One vector for a whole sentence: what that costs when sentences grow."""

from functools import partial
from typing import Any

from seq2see.lab import learning
from seq2see.lab.claim import Chart, Claim, Expectation, Numbers, Plan, Rows, Trial
from seq2see.lab.rivals import RIVALS, rival
from seq2see.lab.tasks import Task


def trials(plan: Plan) -> list[dict[str, Any]]:
    longest, steps = (12, 600) if plan.quick else (24, 5000)
    return [{"model": kind, "task": "reverse", "longest": longest, "steps": steps} for kind in RIVALS]


def measure(trial: Trial) -> Numbers:
    """The same rows in the same order for all; then tokens right, length by length.

    The rate suits all three: at 3e-3 the RNN without attention loses half as much again, the others nothing.
    """
    longest = trial["longest"]
    task = Task(trial["task"], symbols=10, shortest=2, longest=longest)
    model = rival(trial["model"], trial.seed, (task.vocabulary, task.vocabulary))
    course = learning.train(model, task.batches(trial.seed, pairs=48), trial["steps"], learning_rate=5e-3)
    parameters = sum(weight.numel() for weight in model.parameters())
    numbers = {"loss": course.final_loss(task.vocabulary), "parameters": float(parameters)}
    for length in range(longest // 4, longest + 1, longest // 4):
        tests = Task(trial["task"], symbols=10, shortest=length, longest=length).test(trial.seed, 200)
        numbers[f"right@{length}"] = learning.accuracy(model, tests)[1]
    return numbers


def _lost(rows: Rows, model: str) -> float:
    """From the shortest to the longest."""
    lengths = rows.values("length")
    return rows.get("right", model=model, length=min(lengths)) - rows.get("right", model=model, length=max(lengths))


CLAIM = Claim(
    name="bottleneck",
    words="An encoder that squeezes a sentence into one vector of fixed size gets worse as sentences grow; attention, "
    "in an RNN or in a Transformer, does not.",
    source="Bahdanau et al. 2015, sections 1 and 5.2; Vaswani et al. 2017, section 1",
    measured="rows of random symbols to be reversed, by models of about equally many parameters after the same rows of "
    "training: tokens right in free generation, by length",
    trials=trials,
    measure=measure,
    expectations=(
        Expectation(
            "the RNN without attention loses more on long rows than the one with attention",
            "what is lost from short to long, RNN - RNN with attention",
            lambda rows: _lost(rows, "rnn") - _lost(rows, "rnn-attention"),
            at_least=0.1,
        ),
        Expectation(
            "and more than the Transformer",
            "what is lost from short to long, RNN - Transformer",
            lambda rows: _lost(rows, "rnn") - _lost(rows, "transformer"),
            at_least=0.1,
        ),
        *(
            Expectation(
                f"the {name} does not get worse",
                f"what is lost from short to long, {name}",
                partial(_lost, model=model),
                at_most=0.1,
            )
            for model, name in (("rnn-attention", "RNN with attention"), ("transformer", "Transformer"))
        ),
    ),
    charts=(Chart("tokens right", "right", "length", ("model",)), Chart("loss at the end", "loss", "model")),
    places="length",
)
