"""What the look-ahead mask is for."""

from typing import Any

from seq2see.lab import ablations, learning
from seq2see.lab.claim import Chart, Claim, Expectation, Numbers, Plan, Trial
from seq2see.lab.tasks import Task


def trials(plan: Plan) -> list[dict[str, Any]]:
    return [
        {"mask": mask, "task": "reverse", "longest": 8, "steps": 300 if plan.quick else 3000} for mask in (True, False)
    ]


def measure(trial: Trial) -> Numbers:
    """The same training twice, with the mask and without it."""
    task = Task(trial["task"], symbols=10, shortest=4, longest=trial["longest"])
    model = learning.small_model(trial.seed, (task.vocabulary, task.vocabulary))
    if not trial["mask"]:
        ablations.without_look_ahead_mask(model)
    steps = trial["steps"]
    course = learning.train(model, task.batches(trial.seed, pairs=64), steps, learning_rate=5e-3)
    exact, tokens = learning.accuracy(model, task.test(trial.seed, 300))
    early = course.losses[steps // 5 : steps // 4]
    return {
        "loss": course.final_loss(task.vocabulary),
        "loss_early": sum(early) / len(early),
        "exact": exact,
        "tokens": tokens,
    }


CLAIM = Claim(
    name="masks",
    words="The decoder's positions must be kept from attending to later ones, so that a prediction depends on what "
    "is known. Without the mask the loss collapses, as the answer can be read off, and generation fails.",
    source="Vaswani et al. 2017, section 3.1 (decoder)",
    measured="rows of random symbols to be reversed: the loss in training, after a quarter and at the end, and "
    "tokens right when the model has to generate them",
    trials=trials,
    measure=measure,
    expectations=(
        Expectation(
            "without the mask, the loss collapses at once",
            "loss after a quarter of training, without / with the mask",
            lambda rows: rows.get("loss_early", mask=False) / rows.get("loss_early", mask=True),
            at_most=0.5,
        ),
        Expectation(
            "without the mask, generation fails",
            "tokens right, with - without the mask",
            lambda rows: rows.get("tokens", mask=True) - rows.get("tokens", mask=False),
            at_least=0.2,
        ),
    ),
    charts=(
        Chart("loss in training, early", "loss_early", "mask"),
        Chart("tokens right in generation", "tokens", "mask"),
    ),
)
