"""Hugging Face's Marian: the same architecture, with our weights."""

import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import work
from candidates.padded import Padded
from safetensors.torch import load_file
from torch import Tensor
from transformers import MarianConfig, MarianMTModel


class Candidate(Padded):
    def __init__(self, size: work.Size, weights: Path, tuned: bool) -> None:
        settings = MarianConfig(
            vocab_size=size.vocabulary,
            d_model=size.d_model,
            encoder_layers=size.layers,
            decoder_layers=size.layers,
            encoder_attention_heads=size.heads,
            decoder_attention_heads=size.heads,
            encoder_ffn_dim=size.d_ff,
            decoder_ffn_dim=size.d_ff,
            activation_function="relu",
            scale_embedding=True,
            max_position_embeddings=512,
            dropout=work.DROPOUT,
            attention_dropout=0.0,
            activation_dropout=0.0,
            pad_token_id=work.PAD,
            bos_token_id=work.BEGIN,
            eos_token_id=work.END,
            decoder_start_token_id=work.BEGIN,
            forced_eos_token_id=None,
            attn_implementation="sdpa",
        )
        self.model = MarianMTModel(settings)
        _fill(self.model, load_file(weights / "model.safetensors"), size)
        self.tuned = tuned
        self.start_training(tuned)

    def logits(self, source: Tensor, inputs: Tensor) -> Tensor:
        keep_inputs = (inputs != work.PAD).long()
        return self.model(
            input_ids=source,
            attention_mask=(source != work.PAD).long(),
            decoder_input_ids=inputs,
            decoder_attention_mask=keep_inputs,
            use_cache=False,
        ).logits

    @torch.inference_mode()
    def decode(self, sources: list[list[int]], beam: int, length: int) -> list[list[int]]:
        self.model.eval()
        table = torch.tensor(sources, device=self.device)
        found = self.model.generate(
            input_ids=table,
            attention_mask=torch.ones_like(table),
            num_beams=beam,
            do_sample=False,
            max_new_tokens=length,
            length_penalty=1.0,
            early_stopping=False,
        )
        return found[:, 1:].tolist()

    @torch.inference_mode()
    def translate(self, sources: list[list[int]], beam: int) -> list[list[int]]:
        """Batches of 32 as they come; tuned: sorted by length, and ended when five hypotheses are finished."""
        self.model.eval()
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i])) if self.tuned else range(len(sources))
        outputs: list[list[int]] = [[]] * len(sources)
        for first in range(0, len(sources), 32):
            batch = list(order)[first : first + 32]
            table, *_ = work.rectangles([(sources[i], [work.END]) for i in batch])
            found = self.model.generate(
                input_ids=torch.from_numpy(table),
                attention_mask=torch.from_numpy((table != work.PAD).astype(int)),
                num_beams=beam,
                do_sample=False,
                max_new_tokens=2 * table.shape[1] + 10,
                length_penalty=1.0,
                early_stopping=self.tuned,
            )
            for index, row in zip(batch, found[:, 1:].tolist(), strict=True):
                outputs[index] = row[: row.index(work.END)] if work.END in row else row
        return outputs


def _fill(model: MarianMTModel, ours: dict[str, torch.Tensor], size: work.Size) -> None:
    """Our weights under their names."""
    theirs = {"model.shared.weight": ours["source_embedding.tokens.weight"]}
    theirs["final_logits_bias"] = ours["output.bias"][None]
    attentions = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
    norms = {
        "around_attention": "self_attn_layer_norm",
        "around_self": "self_attn_layer_norm",
        "around_cross": "encoder_attn_layer_norm",
        "around_feed_forward": "final_layer_norm",
    }
    linears = {"w_1": "fc1", "w_2": "fc2", "w_o": "out_proj"}
    for name, weight in ours.items():
        if not name.startswith(("encoder.", "decoder.")):
            continue
        stack, number, part, inner, kind = name.split(".")
        layer = f"model.{stack}.layers.{number}"
        if inner == "w_qkv":
            for piece, letter in zip(weight.chunk(3), "qkv", strict=True):
                theirs[f"{layer}.{attentions[part]}.{letter}_proj.{kind}"] = piece.clone()
        elif inner == "norm":
            theirs[f"{layer}.{norms[part]}.{kind}"] = weight
        else:
            home = f"{attentions[part]}." if part in attentions else ""
            theirs[f"{layer}.{home}{linears[inner]}.{kind}"] = weight
    missing, unexpected = model.load_state_dict(theirs, strict=False)
    tied = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"}
    waves = {"model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"}
    assert not unexpected, unexpected
    assert set(missing) <= tied | waves, missing
    model.tie_weights()
    for stack in (model.model.encoder, model.model.decoder):  # theirs: all sines before all cosines
        stack.embed_positions.weight.data = work.waves(512, size.d_model)
