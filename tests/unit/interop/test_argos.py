"""Packages of Argos Translate: what is in them, and Argos Translate itself where it is installed."""

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from conftest import random_words
from seq2see.interop import argos
from seq2see.interop.export import export
from seq2see.run import load
from seq2see.text.pair import Sides

pytest.importorskip("ctranslate2", reason="the extra `fast` is not installed")


def test_the_package_has_all_that_argos_needs(cli, trained: Path, tmp_path: Path) -> None:
    words = ["--to", "argos", "--source-language", "en", "--target-language", "de", "--json"]
    ended = cli("export", trained, tmp_path / "out", *words)
    assert ended.code == 0, ended.err
    facts = json.loads(ended.out)
    assert facts["same"] >= 0.95 * facts["sentences"]
    with zipfile.ZipFile(tmp_path / "out" / "translate-en_de.argosmodel") as package:
        names = set(package.namelist())
        about = json.loads(package.read("translate-en_de/metadata.json"))
    assert {"translate-en_de/model/model.bin", "translate-en_de/sentencepiece.model"} <= names
    assert (about["from_name"], about["to_name"]) == ("English", "German")


def test_without_languages_and_with_tags_it_is_refused(cli, trained: Path, tmp_path: Path) -> None:
    ended = cli("export", trained, tmp_path / "out", "--to", "argos")
    assert (ended.code, "--source-language" in ended.err) == (2, True)
    shutil.copytree(trained, tmp_path / "run")
    settings = tmp_path / "run" / "settings.toml"
    settings.write_text(settings.read_text().replace('tags = ""', 'tags = "de fr"'))
    ended = cli("export", tmp_path / "run", tmp_path / "out", "--to", "argos")
    assert (ended.code, "data.tags" in ended.err) == (2, True)
    settings.write_text(
        (trained / "settings.toml").read_text().replace('source_tags = "none"', 'source_tags = "first"')
    )
    ended = cli("export", tmp_path / "run", tmp_path / "out", "--to", "argos")
    assert (ended.code, "data.source_tags = 'first'" in ended.err) == (2, True), ended.err


SCRIPT = """
import json, sys, types
for name in ("stanza", "minisbd"):  # sentence splitters, which would download a model: a text is one sentence here
    sys.modules[name] = types.ModuleType(name)
sys.modules["minisbd"].SBDetect = object
sys.modules["minisbd"].models = types.SimpleNamespace(cache_dir="", list_models=lambda: ["en"])
from argostranslate import package, sbd, translate
sbd.MiniSBDSentencizer.split_sentences = lambda self, text: [text]
package.install_from_path(sys.argv[1])
given = json.load(sys.stdin)
print(json.dumps([translate.translate(text, "en", "de") for text in given]))
"""


def test_argos_translate_installs_it_and_translates_as_we_do(trained: Path, tmp_path: Path) -> None:
    """Runs where ARGOS_PYTHON is a Python with argostranslate; its sentence splitter is replaced."""
    python = os.environ.get("ARGOS_PYTHON")
    if not python:
        pytest.skip("ARGOS_PYTHON names no Python with argostranslate")
    export(trained, tmp_path / "out", "argos", "float32", languages=Sides("en", "de"))
    words = random_words(100, 19)
    package = tmp_path / "out" / "translate-en_de.argosmodel"
    places = {f"XDG_{each}_HOME": str(tmp_path / each) for each in ("DATA", "CONFIG", "CACHE")}
    ended = subprocess.run(
        [python, "-c", SCRIPT, str(package)],
        input=json.dumps(words),
        capture_output=True,
        text=True,
        env=os.environ | places | {"ARGOS_COMPUTE_TYPE": "float32"},
    )
    assert ended.returncode == 0, ended.stderr
    theirs = json.loads(ended.stdout.splitlines()[-1])
    run = load(trained)
    run.settings = argos.as_argos(run.settings)
    ours = [each.text for each in run.search(words, engine=run.engine("torch"))]
    assert sum(one == other for one, other in zip(ours, theirs, strict=True)) >= 95
