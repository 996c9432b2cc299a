"""Our attributions beside Captum's on sentences of a run: `python -m bench.attributions RUN [--pairs 50] [--steps 50]`.

Captum is given the model as a function of padded rectangles (`Seq2Seq.forward`), without our code for attributions.
For validation pairs of the run, forced to their references, a table is printed as Markdown: for each method the largest
score and the largest difference in nats, and for which share of the output tokens both name the same input token.
"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np
import torch
from captum.attr import FeatureAblation, InputXGradient, IntegratedGradients
from torch import Tensor

import seq2see
from seq2see import special
from seq2see.lens.reading import Floats, Reading
from seq2see.run import Run


class Sentence:
    """A model with one sentence and its translation, as functions that Captum can attribute."""

    def __init__(self, run: Run, reading: Reading) -> None:
        embedding = run.model.source_embedding
        self.model = run.model
        self.source_1S = torch.tensor([reading.source_ids])
        self.inputs_1T = torch.tensor([[special.BEGIN, *reading.target_ids[:-1]]])
        self.target_ids = reading.target_ids
        self.point = embedding.without_positions
        self.x_1SD = embedding.tokens(self.source_1S).detach() * embedding.scale

    def log_probability(self, source_BS: Tensor, t: int) -> Tensor:
        """Return B: the log-probability of output token t; tokens that no output may contain have none."""
        logits_BV = self.model(source_BS, self.inputs_1T.expand(len(source_BS), -1))[:, t].clone()
        logits_BV[:, [special.PAD, special.BEGIN]] = -torch.inf
        return logits_BV.log_softmax(-1)[:, self.target_ids[t]]

    def of_embeddings(self, x_BSD: Tensor, t: int) -> Tensor:
        """Return the same from given embeddings of the source, to which the model adds positions."""
        handle = self.point.register_forward_hook(lambda *_: x_BSD.flatten(0, 1))
        try:
            return self.log_probability(self.source_1S.expand(len(x_BSD), -1), t)
        finally:
            handle.remove()

    def each_token(self, attribute: Callable[[int], Tensor]) -> Floats:
        """Return TS: the attributions of each output token, summed over the columns of embeddings."""
        found = [attribute(t).detach() for t in range(len(self.target_ids))]
        return torch.stack([each.reshape(self.source_1S.shape[1], -1).sum(-1) for each in found]).numpy()

    def gradient(self) -> Floats:
        method = InputXGradient(self.of_embeddings)
        x_1SD = self.x_1SD.clone().requires_grad_()
        return self.each_token(lambda t: method.attribute(x_1SD, additional_forward_args=t))

    def integrated(self, steps: int) -> Floats:
        """Return integrated gradients from embeddings of zeros."""
        method = IntegratedGradients(self.of_embeddings)
        return self.each_token(lambda t: method.attribute(self.x_1SD, 0.0, additional_forward_args=t, n_steps=steps))

    @torch.no_grad()
    def padded(self) -> Floats:
        """Return the ablation of tokens by padding, which the model leaves out when it packs a rectangle."""
        method = FeatureAblation(self.log_probability)
        return self.each_token(
            lambda t: method.attribute(self.source_1S, special.PAD, additional_forward_args=t).float()
        )

    @torch.no_grad()
    def zeroed(self) -> Floats:
        """Return the ablation of embeddings by zeros: the token keeps its position, and those after it do not move."""
        method = FeatureAblation(self.of_embeddings)
        by_token_1S1 = torch.arange(self.x_1SD.shape[1])[None, :, None]
        return self.each_token(
            lambda t: method.attribute(self.x_1SD, 0.0, additional_forward_args=t, feature_mask=by_token_1S1)[..., :1]
        )


def both(run: Run, count: int, steps: int) -> Iterator[tuple[str, Floats, Floats]]:
    """Yield the name of each comparison with our scores and Captum's, sentence by sentence, without the end tokens."""
    for pair in run.validation_pairs[:count]:
        ours = run.importance(pair.source, target=pair.target, steps=steps)
        sentence = Sentence(run, run.read(pair.source, target=pair.target))
        assert ours.integrated is not None
        found = [
            ("`gradient`: `InputXGradient`", ours.gradient, sentence.gradient()),
            ("`integrated`: `IntegratedGradients`, zeros", ours.integrated, sentence.integrated(steps)),
            ("`left_out`: `FeatureAblation`, tokens by padding", ours.left_out, sentence.padded()),
            ("`left_out`: `FeatureAblation`, embeddings by zeros", ours.left_out, sentence.zeroed()),
            ("`left_out`: `InputXGradient`", ours.left_out, ours.gradient),
            ("`left_out`: `IntegratedGradients`, zeros", ours.left_out, ours.integrated),
        ]
        yield from ((name, one[:-1, :-1], two[:-1, :-1]) for name, one, two in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run")
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    rows: dict[str, list[tuple[Floats, Floats]]] = {}
    for name, ours, theirs in both(seq2see.load(args.run), args.pairs, args.steps):
        rows.setdefault(name, []).append((ours, theirs))
    print("| ours: Captum's | largest score | largest difference | same input token |\n|---|---|---|---|")
    for name, found in rows.items():
        largest = max(float(np.abs(ours).max()) for ours, _ in found)
        apart = max(float(np.abs(ours - theirs).max()) for ours, theirs in found)
        same = np.concatenate([ours.argmax(-1) == theirs.argmax(-1) for ours, theirs in found]).mean()
        print(f"| {name} | {largest:.2f} | {apart:.2g} | {same:.1%} |")


if __name__ == "__main__":
    main()
