"""`export --to argos`: a package that Argos Translate and LibreTranslate install (`argospm install FILE`).

NAME/metadata.json         languages and version
     model/                CTranslate2
     sentencepiece.model   for the source; Argos joins the tokens of the target without a model
     README.md
"""

import json
import shutil
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from seq2see import config, storage
from seq2see.config import Settings
from seq2see.decoding import ct2_engine
from seq2see.decoding.translator import Result, Translation
from seq2see.errors import SettingError
from seq2see.interop import huggingface_writer
from seq2see.text.languages import checked, display_name
from seq2see.text.pair import Sides
from seq2see.tokens.store import Tokenizers

BEAM, LENGTH_PENALTY = 4, 0.2
"""Beam width and length penalty that Argos Translate uses."""


def write(run: Path, folder: Path, precision: str, languages: Sides) -> None:
    """Write the package and, for the check, its unpacked files into `folder`; unsupported settings raise an error."""
    settings, tokenizers = config.read_settings(run), Tokenizers.load(run)
    problem = huggingface_writer.tokenizer_obstacle(settings)
    if settings.data.normalization != "identity":
        problem = f"data.normalization = '{settings.data.normalization}' cannot be written as a SentencePiece model"
    if settings.data.tags:
        problem = "data.tags: a package of Argos Translate has one target language"
    if problem:
        raise SettingError(f"{run}: {problem}. Export it with --to ctranslate2")
    known = Sides(**storage.read_manifest(run).get("languages", {}))
    source, target = languages.source or known.source, languages.target or known.target
    if not (source and target):
        raise SettingError(
            f"{run}: the run does not know its languages. Give --source-language and --target-language, such as en, de"
        )
    checked(Sides(source, target))  # they become names of files
    name = f"translate-{source}_{target}"
    (folder / "model").mkdir()
    ct2_engine.convert(run, folder / "model", precision, add_source_eos=True)
    (folder / "sentencepiece.model").write_bytes(huggingface_writer.sentencepiece_model(tokenizers.source))
    about = {"package_version": "1.0", "argos_version": "1.5", "from_code": source, "from_name": display_name(source)}
    about |= {"to_code": target, "to_name": display_name(target)}
    (folder / "metadata.json").write_text(json.dumps(about, indent=1, ensure_ascii=False), encoding="utf-8")
    (folder / "README.md").write_text(f"# {about['from_name']} to {about['to_name']}\n\nTrained with seq2see.\n")
    with zipfile.ZipFile(folder / f"{name}.argosmodel", "w", zipfile.ZIP_DEFLATED) as package:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix != ".argosmodel":
                package.write(path, Path(name) / path.relative_to(folder))


def as_argos(settings: Settings) -> Settings:
    """Return settings with the beam width and length penalty of Argos Translate."""
    return replace(settings, decoding=replace(settings.decoding, beam=BEAM, length_penalty=LENGTH_PENALTY))


def translate(folder: Path, tokenizers: Tokenizers, precision: str, lines: Sequence[str]) -> list[Result]:
    """Translate with the same calls as Argos Translate, from the unpacked package; our `tokenizers` only give the ids
    of the output tokens for the comparison.
    """
    import ctranslate2
    import sentencepiece

    reader = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    model = ctranslate2.Translator(str(folder / "model"), compute_type=precision)
    found = model.translate_batch(
        [reader.encode(line.strip(), out_type=str) for line in lines],
        replace_unknowns=True,
        max_batch_size=32,
        beam_size=BEAM,
        length_penalty=LENGTH_PENALTY,
    )
    ids = {spelling: id for id, spelling in enumerate(tokenizers.target.spellings())}
    results = []
    for each in found:
        text = reader.decode_pieces(each.hypotheses[0]).replace("▁", " ").removeprefix(" ")
        results.append(Result((Translation(text, 0.0, tuple(ids.get(token, -1) for token in each.hypotheses[0])),)))
    return results


def keep_package_only(folder: Path) -> None:
    """Remove the unpacked parts of the package; `metadata.json` is kept to identify the folder."""
    shutil.rmtree(folder / "model")
    for name in ("sentencepiece.model", "README.md"):
        (folder / name).unlink()
