"""TBX files of both versions, and those that are damaged or hostile."""

from pathlib import Path

import pytest

from seq2see.documents import termbases
from seq2see.documents.glossary import Glossary
from seq2see.errors import DataError
from seq2see.text.pair import NOTHING, Sides

SECOND = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE martif SYSTEM "TBXBasiccoreStructV02.dtd">
<martif type="TBX-Basic" xml:lang="en"><martifHeader/><text><body>
<termEntry id="c1">
  <langSet xml:lang="en-US"><tig><term>file</term></tig><tig><term>data
    file</term></tig></langSet>
  <langSet xml:lang="de"><tig><term>Datei</term></tig>
    <ntig><termGrp><term>File</term>
      <termNote type="administrativeStatus">deprecatedTerm-admn-sts</termNote></termGrp></ntig>
  </langSet>
  <langSet xml:lang="fr"><tig><term>fichier</term></tig></langSet>
</termEntry>
<termEntry><langSet xml:lang="en-US"><tig><term>only English</term></tig></langSet></termEntry>
<termEntry><langSet xml:lang="en-US"><tig><term>file</term></tig></langSet>
  <langSet xml:lang="de"><tig><term>Akte</term></tig></langSet></termEntry>
</body></text></martif>"""
THIRD = """<tbx xmlns="urn:iso:std:iso:30042:ed-2" style="dca" type="TBX-Core" xml:lang="en"><text><body>
<conceptEntry id="1"><langSec xml:lang="en"><termSec><term>R&amp;D</term></termSec></langSec>
<langSec xml:lang="ko"><termSec><term>연구 개발</term></termSec></langSec></conceptEntry>
</body></text></tbx>"""


def read(tmp_path: Path, text: str, languages: Sides = NOTHING) -> dict[str, tuple[str, ...]]:
    path = tmp_path / "terms.tbx"
    path.write_text(text, encoding="utf-8")
    return {entry.source: entry.forms for entry in Glossary.read(path, languages).entries.values()}


def test_the_two_languages_of_a_run_are_taken(tmp_path: Path) -> None:
    expected = {"file": ("Datei", "Akte"), "data file": ("Datei",)}
    assert read(tmp_path, SECOND, Sides("en", "de")) == expected
    assert read(tmp_path, SECOND, Sides("de", "fr")) == {"Datei": ("fichier",)}
    assert read(tmp_path, THIRD, Sides("ko", "en")) == {"연구 개발": ("R&D",)}


def test_two_languages_need_not_be_said(tmp_path: Path) -> None:
    assert read(tmp_path, THIRD) == {"R&D": ("연구 개발",)}
    assert read(tmp_path, THIRD, Sides(None, "en")) == {"연구 개발": ("R&D",)}


ENTITIES = """<!DOCTYPE martif [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>"""
BAD = {
    "entities": (f"{ENTITIES}<martif><text><body><term>&c;</term></body></text></martif>", "line 1: the entity 'a'"),
    "a file outside": ('<!DOCTYPE martif [<!ENTITY x SYSTEM "file:///etc/passwd">]><martif>&x;</martif>', "entity 'x'"),
    "not XML": ("file\tDatei\n", "line 1: not XML"),
    "another root": ("<html/>", "<html>, expected <tbx>"),
    "cut short": (SECOND[:400], "not XML"),
    "no terms": ("<tbx><text/></tbx>", "no terms in it"),
    "deep": ("<tbx>" + "<a>" * 200, "nested deeper"),
    "many languages": (SECOND, "3 languages"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_file_is_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message) as problem:
        read(tmp_path, text)
    assert "\n" not in str(problem.value)
    assert "terms.tbx" in str(problem.value)


def test_a_language_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no term in 'ja'"):
        read(tmp_path, THIRD, Sides("en", "ja"))


def test_a_concept_with_too_many_terms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(termbases, "MOST_TERMS", 3)
    with pytest.raises(DataError, match="a concept with more than 3 terms"):
        read(tmp_path, SECOND)
