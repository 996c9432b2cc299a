"""Adam as in Vaswani et al. (2017, section 5.3), in PyTorch's fused form, with weight decay if it is set (AdamW).

This module also reads and sets the random state: an update changes nothing but the weights, their running means and the
random state.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from seq2see.config import Training


class Adam:
    """Adam for the trained weights w (Kingma and Ba, 2015): running means of each gradient g and of its square.

        m = beta_1 m + (1 - beta_1) g        v = beta_2 v + (1 - beta_2) g^2
        w = w - rate * (m / (1 - beta_1^t)) / (sqrt(v / (1 - beta_2^t)) + epsilon)        in update t

    PyTorch's `adamw` computes this in `step`; m and v are called `exp_avg` and `exp_avg_sq` there. The defaults in
    `config.Training` are those of Vaswani et al. (2017): beta_1 = 0.9, beta_2 = 0.98, epsilon = 1e-9.

    PyTorch's functional Adam is called without the class `Optimizer`, which imports PyTorch's compiler: that takes a
    second at the start of every training, and 75 MB. Besides, that class numbers weights by groups, so that the numbers
    would change if only some weights decay.

    All means are allocated in the constructor and not at the first update, where they would lie between the tensors of
    a step and fragment the memory: on a CPU that costs 80 MB for the base model of Vaswani et al.
    (docs/log.md).
    """

    def __init__(self, weights: Iterable[nn.Parameter], settings: Training) -> None:
        self.weights = [weight for weight in weights if weight.requires_grad]
        self._settings = settings
        self._state = [
            {
                "step": torch.zeros((), device=weight.device),
                "exp_avg": torch.zeros_like(weight, requires_grad=False),
                "exp_avg_sq": torch.zeros_like(weight, requires_grad=False),
            }
            for weight in self.weights
        ]

    @torch.no_grad()
    def step(self, rate: float, skipped: Tensor | None = None) -> None:
        """Update all weights that have a gradient. Weight decay applies to matrices, not to norms and biases.

        Args:
            rate: The learning rate.
            skipped: A tensor that is 1 if nothing is to be changed, else 0. It may be on the GPU, so that the CPU need
                not wait for it.
        """
        decay = self._settings.weight_decay
        learning = [
            (weight, weight.grad, *state.values())
            for weight, state in zip(self.weights, self._state, strict=True)
            if weight.grad is not None
        ]
        for decays in (True, False):
            chosen = [entry for entry in learning if (decay > 0 and entry[0].dim() > 1) == decays]
            if not chosen:
                continue
            weights, gradients, steps, means, squares = map(list, zip(*chosen, strict=True))
            adamw(
                weights,
                gradients,
                means,
                squares,
                [],
                steps,
                fused=True,
                found_inf=skipped,
                amsgrad=False,
                beta1=self._settings.adam_beta1,
                beta2=self._settings.adam_beta2,
                lr=rate,
                weight_decay=decay if decays else 0.0,
                eps=self._settings.adam_epsilon,
                maximize=False,
            )

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Delete the gradients if `set_to_none`; otherwise set them to 0 in place."""
        if set_to_none:
            for weight in self.weights:
                weight.grad = None
        elif gradients := [weight.grad for weight in self.weights if weight.grad is not None]:
            torch._foreach_zero_(gradients)  # one kernel launch on a GPU, not one for each

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that `step` changes besides the weights; the first weight has `0.step`, `0.exp_avg` and
        `0.exp_avg_sq`.
        """
        return {
            f"{number}.{name}": tensor for number, state in enumerate(self._state) for name, tensor in state.items()
        }


Dice = dict[str, Tensor]


def random_state() -> Dice:
    """Return the state of the random number generators that an update uses: PyTorch's on the CPU and, if there is a
    GPU, on the current one.
    """
    state = {"random.cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["random.cuda"] = torch.cuda.get_rng_state()
    return state


def set_random_state(state: Dice) -> None:
    """Set the generators to a state that `random_state` returned."""
    torch.set_rng_state(state["random.cpu"])
    if "random.cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["random.cuda"])
