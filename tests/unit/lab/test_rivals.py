"""The three are of one size, and the claims about them can be measured."""

import pytest

from seq2see.lab import catalogue
from seq2see.lab.claim import Trial
from seq2see.lab.rivals import RIVALS, rival


def sizes_of(vocabularies: tuple[int, int], **changes: int) -> list[int]:
    models = (rival(kind, 1, vocabularies, **changes) for kind in RIVALS)
    return [sum(weight.numel() for weight in model.parameters()) for model in models]


@pytest.mark.parametrize(("vocabularies", "width"), [((14, 14), 64), ((900, 700), 32), ((1004, 1004), 256)])
def test_all_have_about_as_many_parameters(vocabularies, width):
    first, *others = sizes_of(vocabularies, d_model=width, d_ff=2 * width)
    assert all(abs(other / first - 1) < 0.06 for other in others)


def test_the_comparison_trains_whole_runs_and_keeps_them(tmp_path):
    pairs = tmp_path / "upper.tsv"
    pairs.write_text("".join(f"{word}\t{word.upper()}\n" for word in map("{:b}".format, range(1, 200))))
    conditions = {"pairs": str(pairs), "steps": 4, "batch_tokens": 200}
    claim, sizes = catalogue.find("comparison"), []
    for kind in ("transformer", "rnn-attention", "rnn"):
        trial = Trial("comparison", {**conditions, "model": kind}, 1, tmp_path / "runs")
        numbers = claim.measure(trial)
        sizes.append(numbers["parameters"])
        assert claim.measure(trial) == numbers  # the run is there: nothing is trained again
    assert all(abs(size / sizes[0] - 1) < 0.06 for size in sizes)
