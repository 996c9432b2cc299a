"""The page of docs/guides/browser.md: transformers.js translates in Chromium as we do, without a network."""

import functools
import json
import os
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from browser import Browser, obstacle

from conftest import random_words
from seq2see.interop.export import export
from seq2see.run import load

pytestmark = [pytest.mark.browser, pytest.mark.skipif(bool(obstacle()), reason=obstacle())]
pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")


def test_the_page_of_the_guide_translates_in_chromium(trained: Path, tmp_path: Path) -> None:
    """The HTML of docs/guides/browser.md, served from this machine; runs where transformers.js is installed."""
    place = Path(os.environ.get("TRANSFORMERS_JS", "/nowhere")) / "node_modules"
    if not (place / "@huggingface" / "transformers").is_dir():
        pytest.skip("transformers.js is not installed in the folder TRANSFORMERS_JS")
    guide = Path(__file__).parents[2] / "docs" / "guides" / "browser.md"
    html = guide.read_text(encoding="utf-8").split("```html\n")[1].split("```")[0]
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "index.html").write_text(html, encoding="utf-8")
    (tmp_path / "page" / "node_modules").symlink_to(place)
    export(trained, tmp_path / "page" / "models" / "model", "onnx", "float32")
    handler = functools.partial(Quiet, directory=str(tmp_path / "page"))
    words = random_words(20, 23)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Browser(tmp_path / "profile") as chromium:
            chromium.open(f"http://127.0.0.1:{server.server_port}/")
            given = json.dumps("\n".join(words))
            chromium.run(f'document.getElementById("source").value = {given}; document.getElementById("go").click()')
            chromium.wait('document.getElementById("state").textContent === "translated"')
            theirs = chromium.run('document.getElementById("target").textContent').split("\n")
        server.shutdown()
    run = load(trained)
    assert theirs == [each.text for each in run.search(words, 1, engine=run.engine("torch"))]


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *_: object) -> None: ...
