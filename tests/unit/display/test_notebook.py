"""What a notebook shows of a run, a translation, scores, comparisons and results of the lab; and its progress bar."""

import re
import sys
from types import SimpleNamespace

import pytest

import seq2see
from seq2see.display import notebook
from seq2see.evaluation import compare, metrics
from seq2see.lab import catalogue
from seq2see.lab.claim import Measured, conclude


class ZMQInteractiveShell:
    """A kernel of a notebook, by its name."""


@pytest.fixture
def kernel(monkeypatch):
    """Return the list of what is displayed in a notebook that is not there."""
    shown: list[str] = []

    class Handle:
        def update(self, page):
            shown.append(page)

    def display(page, display_id=False):
        shown.append(page)
        return Handle()

    ipython = SimpleNamespace(get_ipython=ZMQInteractiveShell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(HTML=str, display=display))
    return shown


def test_a_run_displays_itself(trained):
    page = seq2see.load(trained)._repr_html_()
    assert page.startswith("<table>")
    assert "parameters" in page
    assert "layers, width" in page


def test_a_translation_displays_the_page_that_look_writes(trained, kernel):
    page = seq2see.load(trained).look("bad")._repr_html_()
    assert page.startswith("<iframe")
    assert 'sandbox="allow-scripts"' in page
    assert "&lt;!doctype html&gt;" in page
    assert not re.search(r"src=&quot;http|href=&quot;http", page)  # it needs no network


def test_an_evaluation_and_its_scores_display_themselves(trained):
    found = seq2see.load(trained).evaluate([("bad", "BAD"), ("fee", "FEE")])
    for page in (found._repr_html_(), found.scores._repr_html_()):
        assert "exact" in page
        assert "signature" in page


def test_a_comparison_displays_itself():
    texts = [f"text {number}" for number in range(30)]
    one, other = (metrics.score([[text] for text in said], [[text] for text in texts]) for said in (texts, texts[::-1]))
    page = compare.paired_bootstrap([one], [other])._repr_html_()
    assert "95 % interval" in page
    assert "too few runs" in page


def test_results_of_the_lab_display_themselves():
    (claim,) = catalogue.pick(["masks"])
    page = Measured([conclude(claim, [])], {})._repr_html_() if not claim.expectations else None
    assert page is None or "masks" in page


def test_everything_is_escaped():
    page = notebook.table("<b>", ["<i>"], [("<script>", "<u>")])
    assert "<script>" not in page
    assert "<u>" not in page


def test_a_terminal_is_no_notebook():
    assert not notebook.is_notebook()


def test_a_training_in_a_notebook_has_a_progress_bar(kernel, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_text("".join(f"a{n}\tb{n}\n" for n in range(60)), encoding="utf-8")
    tiny = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "heads": 2, "d_ff": 8}
    training = {"max_steps": 4, "validate_every": 2, "batch_tokens": 64}
    run = seq2see.train("pairs.tsv", settings={"model": tiny, "training": training})
    assert notebook.is_notebook()
    assert "<progress value='100.0'" in kernel[-1] or "4/4" in "".join(kernel)
    run.importance("a1")
    assert any("leaving out input tokens" in page for page in kernel)
