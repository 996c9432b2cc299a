"""`push` and models by name, against a stand-in of the Hugging Face Hub on this machine."""

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import marian
from seq2see import config, storage
from seq2see.errors import PassingError, RunError, SettingError
from seq2see.interop import hub
from seq2see.interop.importing import import_model
from seq2see.run import load

pytest.importorskip("huggingface_hub", reason="the extra `export` is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
COMMIT = "c0ffee" * 6 + "beef"
LARGE = ("model.safetensors", "pytorch_model.bin", "source.spm", "target.spm")
"""Files that the Hub keeps apart, with their SHA-256."""


class StandIn(ThreadingHTTPServer):
    """One repository, in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.damaged = False
        """Whether another file is sent than the one that is listed."""
        self.sizes: dict[str, int] = {}
        """Sizes that are listed instead of the true ones."""
        self.card: dict[str, Any] = {"license": "cc-by-4.0"}
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
        if "/nobody/" in path:
            self.refuse(401, "RepoNotFound")
        elif "/gated/" in path:
            self.refuse(403, "GatedRepo")
        elif "/revision/" in path and not path.endswith((COMMIT, "/main")):
            self.refuse(404, "RevisionNotFound")
        elif "/resolve/" in path and path.split("/", 5)[5] in LARGE:
            self.send_response(302)
            self.send_header("Location", path.replace("/resolve/", "/storage/", 1))
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif "/resolve/" in path or "/storage/" in path:
            body = self.server.files[path.split("/", 5)[5]]
            headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()}"', "X_Repo_Commit": COMMIT}
            body = body[:-1] + b"!" if self.server.damaged else body
            self.answer(body, "application/octet-stream", **headers)
        elif "/tree/" in path:
            found = [
                {"type": "file", "path": name, "size": len(body), "oid": hashlib.sha1(body).hexdigest()}
                for name, body in self.server.files.items()
            ]
            self.answer(json.dumps(found).encode())
        else:
            about: dict[str, Any] = {"id": "owner/model", "modelId": "owner/model", "sha": COMMIT, "private": False}
            about |= {"siblings": [self.listed(name) for name in self.server.files], "tags": [], "downloads": 0}
            self.answer(json.dumps(about | {"cardData": self.server.card}).encode())

    def listed(self, name: str) -> dict[str, Any]:
        """Return a file as the Hub lists it."""
        body = self.server.files[name]
        about: dict[str, Any] = {"rfilename": name, "size": self.server.sizes.get(name, len(body)), "blobId": "0" * 40}
        if name in LARGE:
            about["lfs"] = {"size": len(body), "sha256": hashlib.sha256(body).hexdigest(), "pointerSize": 134}
        return about

    def refuse(self, code: int, why: str) -> None:
        self.send_response(code)
        self.send_header("X-Error-Code", why)
        self.send_header("Content-Length", "0")
        self.end_headers()

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


@pytest.fixture
def opus(server: StandIn, once: Callable[..., Path]) -> StandIn:
    """Return a Hub with a model as OPUS-MT's are there: weights of several programs, and more folders."""
    made = once("marian", lambda folder: marian.make(folder / "model")) / "model"
    server.files = {path.name: path.read_bytes() for path in made.iterdir()}
    server.files |= dict.fromkeys(("tf_model.h5", "rust_model.ot", "onnx/config.json"), b"of another program")
    server.files |= {"pytorch_model.bin": b"not needed", ".gitattributes": b""}
    return server


def test_a_name_is_enough_for_the_command(opus: StandIn, tmp_path: Path) -> None:
    opus.card = {"license": ["apache-2.0", "cc-by-4.0"]}
    command = [sys.executable, "-m", "seq2see", "import", "Helsinki-NLP/opus-mt-xx-yy", "run", "--revision", "main"]
    more = {"HF_ENDPOINT": opus.address, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    more["HF_HUB_OFFLINE"] = "0"  # other tests set it
    ended = subprocess.run(command, cwd=tmp_path, env=os.environ | more, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    about = storage.read_manifest(tmp_path / "run")["imported"]
    assert (about["from"], about["revision"]) == ("Helsinki-NLP/opus-mt-xx-yy", COMMIT)
    assert about["licence"] == "apache-2.0, cc-by-4.0"
    sums = {name: hashlib.sha256(body).hexdigest() for name, body in opus.files.items()}
    names = {"config.json", "generation_config.json", "tokenizer_config.json", "vocab.json"}
    assert about["files"] == {name: sums[name] for name in names | {"model.safetensors", "source.spm", "target.spm"}}
    fetched = {path.rpartition("/")[2] for path in opus.asked if "/resolve/" in path}
    assert fetched == about["files"].keys()
    assert any(path.partition("?")[0].endswith("/revision/main") for path in opus.asked)
    assert all(COMMIT in path for path in opus.asked if "/resolve/" in path)  # not of a branch, which may move


def test_what_the_hub_refuses_is_said_in_one_line(opus: StandIn, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no model of this name"):
        import_model("nobody/model", tmp_path / "run", endpoint=opus.address)
    with pytest.raises(PassingError, match="ask for consent"):
        import_model("gated/model", tmp_path / "run", endpoint=opus.address)
    with pytest.raises(SettingError, match="--revision v9: owner/model has no such"):
        import_model("owner/model", tmp_path / "run", revision="v9", endpoint=opus.address)
    opus.damaged = True
    with pytest.raises(PassingError, match="does not have the SHA-256"):
        import_model("owner/model", tmp_path / "run", endpoint=opus.address)
    opus.sizes["model.safetensors"] = 10**18
    with pytest.raises(PassingError, match="set TMPDIR"):
        import_model("owner/model", tmp_path / "run", endpoint=opus.address)
    opus.files |= {f"{number}.json": b"{}" for number in range(100)}
    with pytest.raises(RunError, match="at most 100 are allowed"):
        import_model("owner/model", tmp_path / "run", endpoint=opus.address)
    opus.files = {"model.safetensors": b"", "../config.json": b"{}", "a/config.json": b"{}"}
    with pytest.raises(RunError, match=r"no config\.json"):
        import_model("owner/model", tmp_path / "run", endpoint=opus.address)
    assert not (tmp_path / "run").exists()


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
    assert "A sequence-to-sequence Transformer (" in text


@pytest.mark.parametrize(("architecture", "kind"), [("rnn-dot", "RNN"), ("convolutional", "convolutional model")])
def test_the_card_names_the_architecture(tmp_path: Path, architecture: str, kind: str) -> None:
    storage.write_manifest(tmp_path, {})
    config.write_toml(config.resolve({"model": {"architecture": architecture}}), tmp_path / "settings.toml")
    text = hub.model_card(tmp_path, "owner/model")
    assert f"A sequence-to-sequence {kind} (" in text
    assert "Transformer" not in text


def test_names_and_failures(cli, tmp_path: Path, trained: Path) -> None:
    assert hub.is_name("Helsinki-NLP/opus-mt-en-de")
    assert not any(map(hub.is_name, ("opus-mt", "../x/y", "a/b/c", "-a/b", "a/")))
    with pytest.raises(SettingError, match="OWNER/NAME"):
        hub.push(trained, "no-owner")
    with pytest.raises(PassingError, match="owner/model"):
        import_model("owner/model", tmp_path / "run", endpoint="http://127.0.0.1:9")
    ended = cli("import", tmp_path, tmp_path / "run", "--revision", "main")
    assert (ended.code, "--revision" in ended.err) == (2, True)
