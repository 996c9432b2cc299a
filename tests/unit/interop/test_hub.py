"""`push` and models by name, against a stand-in of the Hugging Face Hub on this machine."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import marian
from seq2see import storage
from seq2see.errors import PassingError, SettingError
from seq2see.interop import hub
from seq2see.interop.importing import import_model
from seq2see.run import load

pytest.importorskip("huggingface_hub", reason="the extra `export` is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
COMMIT = "c0ffee" * 6 + "beef"


class StandIn(ThreadingHTTPServer):
    """One repository, in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: StandIn

    def log_message(self, *_: object) -> None: ...

    def answer(self, body: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(200)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_POST(self) -> None:
        given = b""
        if "Content-Length" in self.headers:
            given = self.rfile.read(int(self.headers["Content-Length"]))
        while "chunked" in self.headers.get("Transfer-Encoding", ""):
            size = int(self.rfile.readline(), 16)
            given += self.rfile.read(size)
            self.rfile.readline()
            if not size:
                break
        self.server.asked.append(self.path)
        if self.path.endswith("/repos/create"):
            name = json.loads(given)["name"]
            self.answer(json.dumps({"url": f"{self.server.address}/owner/{name}"}).encode())
        elif "/preupload/" in self.path:
            names = [each["path"] for each in json.loads(given)["files"]]
            modes = [{"path": name, "uploadMode": "regular", "shouldIgnore": False, "oid": None} for name in names]
            self.answer(json.dumps({"files": modes}).encode())
        elif self.path.endswith("/validate-yaml"):
            self.answer(json.dumps({"errors": [], "warnings": []}).encode())
        else:  # the commit: lines of JSON, each with a file
            for line in map(json.loads, given.splitlines()):
                if line["key"] == "file":
                    self.server.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            about = {"commitUrl": f"{self.server.address}/owner/model/commit/{COMMIT}", "commitOid": COMMIT}
            self.answer(json.dumps({"success": True, **about}).encode())

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        path = self.path.partition("?")[0]
        if "/resolve/" in path:
            body = self.server.files[path.split("/", 5)[5]]
            headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()}"', "X_Repo_Commit": COMMIT}
            self.answer(body, "application/octet-stream", **headers)
        elif "/tree/" in path:
            found = [
                {"type": "file", "path": name, "size": len(body), "oid": hashlib.sha1(body).hexdigest()}
                for name, body in self.server.files.items()
            ]
            self.answer(json.dumps(found).encode())
        else:
            about: dict[str, Any] = {"id": "owner/model", "modelId": "owner/model", "sha": COMMIT, "private": False}
            about |= {"siblings": [{"rfilename": name} for name in self.server.files], "tags": [], "downloads": 0}
            self.answer(json.dumps(about | {"cardData": {"license": "cc-by-4.0"}}).encode())

    do_HEAD = do_GET


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandIn]:
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with StandIn() as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


def test_a_marian_model_goes_there_and_comes_back(server: StandIn, tmp_path: Path) -> None:
    marian.make(tmp_path / "model")
    import_model(tmp_path / "model", tmp_path / "run")
    hub.push(tmp_path / "run", "owner/model", endpoint=server.address)
    assert {"README.md", "config.json", "model.safetensors", "source.spm", "vocab.json"} <= server.files.keys()
    assert b"license: other" in server.files["README.md"]
    import_model("owner/model", tmp_path / "back", endpoint=server.address)
    about = storage.read_manifest(tmp_path / "back")["imported"]
    assert (about["from"], about["revision"], about["licence"]) == ("owner/model", COMMIT, "cc-by-4.0")
    assert about["files"]["config.json"] == hashlib.sha256(server.files["config.json"]).hexdigest()
    lines = marian.sentences(20, 9)
    ours, again = (load(tmp_path / name).search(lines, 1) for name in ("run", "back"))
    assert [each.translations[0].tokens for each in ours] == [each.translations[0].tokens for each in again]


def test_any_other_run_goes_there_as_it_is(server: StandIn, trained: Path, tmp_path: Path) -> None:
    hub.push(trained, "owner/letters", endpoint=server.address)
    assert {"README.md", "manifest.json", "settings.toml", "model.safetensors"} <= server.files.keys()
    assert not any("validation" in name or "corpus" in name for name in server.files)
    import_model("owner/letters", tmp_path / "back", endpoint=server.address)
    assert load(tmp_path / "back").translate(["abc"]) == load(trained).translate(["abc"])


def test_the_card_says_what_the_manifest_knows(trained: Path) -> None:
    text = hub.model_card(trained, "owner/letters")
    assert "updates of 1,000 tokens" in text
    assert "## Licence\n\nFill in." in text
    assert "training pairs" in text
    assert "| exact |" in text or "None recorded" in text


def test_names_and_failures(cli, tmp_path: Path, trained: Path) -> None:
    assert hub.is_name("Helsinki-NLP/opus-mt-en-de")
    assert not any(map(hub.is_name, ("opus-mt", "../x/y", "a/b/c", "-a/b", "a/")))
    with pytest.raises(SettingError, match="OWNER/NAME"):
        hub.push(trained, "no-owner")
    with pytest.raises(PassingError, match="owner/model"):
        import_model("owner/model", tmp_path / "run", endpoint="http://127.0.0.1:9")
    ended = cli("import", tmp_path, tmp_path / "run", "--revision", "main")
    assert (ended.code, "--revision" in ended.err) == (2, True)
