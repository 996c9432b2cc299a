"""Marian models as `transformers` makes them: a folder with two SentencePiece models, a vocabulary and weights."""

import functools
import io
import json
import random
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentencepiece
import torch

from seq2see.run import Run

LENGTH = 60
SIZES = {"encoder_layers": 2, "decoder_layers": 1, "d_model": 32}


def sentences(count: int, seed: int, letters: str = "abcdefghijklmnop") -> list[str]:
    """Return sentences of made-up words; the words are the same for the same letters."""
    dice = random.Random(letters)
    words = ["".join(dice.choices(letters, k=dice.randint(2, 7))) for _ in range(300)]
    dice = random.Random(seed)
    return [" ".join(dice.choices(words, k=dice.randint(2, 9))) for _ in range(count)]


@functools.cache
def sentencepiece_model(letters: str, size: int) -> bytes:
    """Return a SentencePiece model that normalises text by a table, as those of OPUS-MT do."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*sentences(600, 1, letters), "Ａ é ½ ﬁ"]),
        model_writer=written,
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return written.getvalue()


def make(
    folder: Path,
    *,
    separate: bool = False,
    tags: Sequence[str] = (),
    bias: bool = True,
    letters: tuple[str, str] = ("abcdefghijklmnop", "klmnopqrstuvwxyz"),
    **more: Any,
) -> Any:
    """Write a folder with random weights, and return the model of `transformers`.

    Args:
        separate: A vocabulary for each side, instead of one for both.
        more: Values of `MarianConfig`.
    """
    from transformers import MarianConfig, MarianMTModel

    folder.mkdir(parents=True)
    models = sentencepiece_model(letters[0], 120), sentencepiece_model(letters[1], 140)
    lists = []
    for name, model in zip(("source.spm", "target.spm"), models, strict=True):
        (folder / name).write_bytes(model)
        reader = sentencepiece.SentencePieceProcessor(model_proto=model)
        lists.append([reader.id_to_piece(id) for id in range(3, reader.get_piece_size())])
    longest = max(map(len, lists))  # the id of padding must fit both sides
    lists = [[*each, *(f"extra{number}" for number in range(longest - len(each)))] for each in lists]
    source, target = (
        {token: id for id, token in enumerate(dict.fromkeys(["</s>", "<unk>", *tags, *tokens, "<pad>"]))}
        for tokens in (lists if separate else [[*lists[0], *lists[1]]] * 2)
    )
    (folder / "vocab.json").write_text(json.dumps(source), encoding="utf-8")
    about = {
        "source_lang": "xx",
        "target_lang": "yy",
        "separate_vocabs": separate,
        "tokenizer_class": "MarianTokenizer",
    }
    if separate:
        (folder / "target_vocab.json").write_text(json.dumps(target), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(about), encoding="utf-8")
    pad, heads, width = target["<pad>"], more.pop("heads", 4), more.pop("width", 48)
    values: dict[str, Any] = {
        "vocab_size": len(source),
        "decoder_vocab_size": len(target),
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": width,
        "decoder_ffn_dim": width,
        "activation_function": "swish",
        "scale_embedding": True,
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
        "eos_token_id": 0,
        "forced_eos_token_id": None,
        "max_position_embeddings": 128,
        "share_encoder_decoder_embeddings": not separate,
    }
    torch.manual_seed(len(str(more)))
    model = MarianMTModel(MarianConfig(**SIZES | values | more))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn_like(weight) * (0.3 if weight.dim() == 1 else weight.shape[-1] ** -0.5))
        if bias:
            model.final_logits_bias.normal_()
    save(model, folder)
    return model


def save(model: Any, folder: Path) -> None:
    """Write the weights, with OPUS-MT's settings of generation."""
    generation = model.generation_config
    generation.bad_words_ids, generation.num_beams = [[model.config.pad_token_id]], 4
    generation.max_length, generation.renormalize_logits = LENGTH, True
    model.eval().save_pretrained(folder)


def tokenizer(folder: Path) -> Any:
    from transformers import MarianTokenizer

    more = {"target_vocab_file": str(path)} if (path := folder / "target_vocab.json").exists() else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends sacremoses, which it does not use here
        return MarianTokenizer.from_pretrained(folder, **more)


class Comparison:
    """A model of `transformers` beside the run that was imported from it: ids, logits and searches."""

    def __init__(self, model: Any, folder: Path, run: Run) -> None:
        self.model, self.run, self.tokenizer = model, run, tokenizer(folder)
        pad, end = model.config.pad_token_id, 0
        listed = self.tokenizer.target_encoder if self.tokenizer.separate_vocabs else self.tokenizer.encoder
        spellings = run.tokenizers.target.spellings()
        self.pad, self.end = pad, end
        self.ours = {id: spellings.index(token, 4) for token, id in listed.items() if id > 1 and id != pad}
        self.ours |= {end: 3, 1: 1, pad: 2}

    def batch(self, lines: Sequence[str]) -> Any:
        return self.tokenizer(list(lines), return_tensors="pt", padding=True)

    @torch.no_grad()
    def logits_differ(self, lines: Sequence[str]) -> float:
        """Return the largest difference of any logit, with random tokens as outputs."""
        torch.manual_seed(1)
        theirs_BT = torch.randint(2, self.model.config.decoder_vocab_size - 1, (len(lines), 7))
        theirs_BT[:, 0] = self.pad
        their_logits = self.model(**self.batch(lines), decoder_input_ids=theirs_BT).logits
        sources = [torch.tensor([*ids, 3]) for ids in self.run.tokenizers.source.encode(list(lines))]
        ours_BT = theirs_BT.clone().apply_(lambda id: self.ours[id])
        logits = self.run.model(torch.nn.utils.rnn.pad_sequence(sources, batch_first=True), ours_BT)
        theirs, ours = zip(*self.ours.items(), strict=True)
        return float((logits[..., list(ours)] - their_logits[..., list(theirs)]).abs().max())

    def generated(self, lines: Sequence[str], beam: int, length: int = LENGTH) -> list[list[int]]:
        """Return the tokens that `generate` gives, as our ids, up to the end token."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = self.model.generate(**self.batch(lines), num_beams=beam, do_sample=False, max_length=length)
        rows = [row[1:] for row in found.tolist()]
        return [[self.ours[id] for id in (row[: row.index(0)] if 0 in row else row)] for row in rows]

    def searched(self, lines: Sequence[str], beam: int, engine: str = "torch") -> list[list[int]]:
        """Return the same from the run, cut to the same number of steps."""
        results = self.run.search(lines, beam, engine=self.run.engine(engine, "float32"))
        return [list(result.translations[0].tokens)[: LENGTH - 1] for result in results]
