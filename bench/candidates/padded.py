"""The parts that peers have in common: padded batches, AdamW, cross entropy over all logits at once."""

import torch
import work
from torch import Tensor, nn
from torch.nn import functional as F


class Padded:
    """A peer gives `model` and `logits`; tuned, it has PyTorch's fused AdamW (and, from the parent, the allocator).

    On a GPU (`bench/gpu.py`) it computes in bfloat16.
    """

    model: nn.Module
    device = torch.device("cpu")

    def start_training(self, tuned: bool) -> None:
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=True if tuned else None)

    def logits(self, source: Tensor, inputs: Tensor) -> Tensor:
        raise NotImplementedError

    def train(self, batch: work.Batch) -> None:
        self.model.train()
        self._loss(batch).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def loss(self, batch: work.Batch) -> float:
        self.model.eval()
        with torch.no_grad():
            return float(self._loss(batch))

    def _loss(self, batch: work.Batch) -> Tensor:
        source, inputs, labels = (torch.from_numpy(table).to(self.device) for table in work.rectangles(batch))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            logits = self.logits(source, inputs)
        return F.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=work.PAD, label_smoothing=work.SMOOTHING
        )
