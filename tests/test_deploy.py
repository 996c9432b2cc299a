"""The files in deploy/ are checked as far as that is possible without running containers or systemd."""

import configparser
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from seq2see.serve.limits import Limits

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
DEPLOY = Path(__file__).parents[1] / "deploy"
UNIT = DEPLOY / "seq2see.service"
DRAIN = Limits().deadline + 1
"""Seconds in which the service answers what has come, after SIGTERM."""
NEEDS_SYSTEMD = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")


def instructions() -> list[tuple[str, str]]:
    """Instructions of the Containerfile, with continued lines joined."""
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def values(name: str) -> list[str]:
    return [given for instruction, given in instructions() if instruction == name]


def unit() -> dict[str, list[str]]:
    """The settings of [Service]; some stand there several times."""
    section = UNIT.read_text(encoding="utf-8").partition("\n[Service]\n")[2].partition("\n[")[0]
    found: dict[str, list[str]] = {}
    for line in section.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def pod() -> dict[str, Any]:
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")))
    (found,) = [each for each in documents if each["kind"] == "Deployment"]
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def composed() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]["seq2see"]
    return found


def test_the_image_runs_as_a_numbered_user_and_writes_to_tmp_only():
    (user,) = values("USER")
    assert re.fullmatch(r"[1-9][0-9]*:[1-9][0-9]*", user)  # Kubernetes refuses names where runAsNonRoot is set
    settings = dict(word.split("=", 1) for line in values("ENV") for word in shlex.split(line))
    assert all(settings[name].startswith("/tmp") for name in ("HOME", "XDG_CACHE_HOME"))
    assert values("STOPSIGNAL") == ["SIGTERM"]
    assert not values("HEALTHCHECK")  # which images in the OCI format do not have


def test_all_versions_in_the_image_are_those_of_the_lock_file():
    installs = [part for line in values("RUN") for part in line.split("&&") if "pip install" in part]
    assert len(installs) == 2
    for each in installs:
        assert "--constraint /tmp/requirements.lock" in each
    (built,) = [part for line in values("RUN") for part in line.split("&&") if "pip wheel" in part]
    assert "--no-build-isolation" in built  # else the build takes the newest setuptools
    locked = {
        line.partition("==")[0].lower() for line in (DEPLOY.parent / "requirements.lock").read_text().splitlines()
    }
    slim = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["seq2see"]["slim"]
    needed = {"setuptools", *slim["dependencies"]}
    assert {name.replace("-", "_") for name in needed} <= {name.replace("-", "_") for name in locked}
    assert "--constraint requirements.lock" in UNIT.read_text(encoding="utf-8")


def test_the_image_is_built_from_what_is_copied_into_it(tmp_path):
    """The first stage, step by step with the files that it copies; the wheel is built by a test of the slim wheel."""
    for line in values("COPY"):
        *sources, target = line.split()
        if sources[0].startswith("--from="):
            continue
        place = tmp_path / target.removeprefix("/")
        for source in sources:
            path = DEPLOY.parent / source
            if path.is_dir():
                shutil.copytree(path, place, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place)
    words = [sys.executable, str(tmp_path / "tmp/seq2see/deploy/slim.py"), str(tmp_path / "slim")]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert {path.name for path in (tmp_path / "slim").iterdir()} == {"LICENSE", "README.md", "pyproject.toml", "src"}


def test_containers_are_asked_for_their_health_and_given_time_to_end():
    for probe, path in (("livenessProbe", "/health"), ("readinessProbe", "/ready"), ("startupProbe", "/ready")):
        assert pod()["containers"][0][probe]["httpGet"] == {"path": path, "port": 8000}
    assert pod()["terminationGracePeriodSeconds"] > DRAIN
    test = composed()["healthcheck"]["test"]
    assert test[0] == "CMD"
    assert "/health" in test[-1]
    compile(test[-1], "healthcheck", "exec")
    assert int(composed()["stop_grace_period"].removesuffix("s")) > DRAIN
    stop = re.search(r"--stop-timeout (\d+)", (DEPLOY / "Containerfile").read_text(encoding="utf-8"))
    assert stop
    assert int(stop[1]) > DRAIN


def test_containers_have_a_root_file_system_that_is_read_only():
    (container,) = pod()["containers"]
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    mounts = {each["mountPath"]: each.get("readOnly", False) for each in container["volumeMounts"]}
    assert mounts == {"/runs": True, "/tmp": False}
    assert composed()["read_only"] is True
    assert composed()["tmpfs"] == ["/tmp"]
    assert all(each.endswith(":ro") for each in composed()["volumes"])


def test_options_are_those_that_there_are():
    (start,) = unit()["ExecStart"]
    given = [*start.split(), *map(str, pod()["containers"][0]["args"]), *composed()["command"], *values("ENTRYPOINT")]
    options = set(re.findall(r"--[a-z-]+", " ".join(given)))
    assert {"--host", "--allow-host"} <= options
    program = subprocess.run([sys.executable, "-m", "seq2see", "serve", "--help"], capture_output=True, text=True)
    assert options <= set(re.findall(r"--[a-z-]+", program.stdout))


def test_the_unit_survives_engines_and_ends_in_time():
    found = unit()
    assert found["OOMPolicy"] == ["continue"]
    assert int(found["TimeoutStopSec"][0]) > DRAIN
    assert found["KillMode"] == ["mixed"]
    assert found["SystemCallFilter"] == ["@system-service", "~@privileged"]
    text = UNIT.read_text(encoding="utf-8")
    assert re.search(r"^#\s+PrivateDevices=no$", text, re.MULTILINE)  # for a GPU
    assert text.index("install -d -o seq2see /var/lib/seq2see") < text.index("/var/lib/seq2see/dates")
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.read_string(text)
    assert parser.sections() == ["Unit", "Service", "Install"]


@NEEDS_SYSTEMD
def test_systemd_reads_the_unit():
    checked = subprocess.run(["systemd-analyze", "verify", str(UNIT)], capture_output=True, text=True, timeout=60)
    problems = [line for line in checked.stderr.splitlines() if "seq2see.service" in line]
    assert not [line for line in problems if "not executable" not in line and "No such file" not in line]


@NEEDS_SYSTEMD
def test_systemd_finds_the_unit_safe():
    words = ["systemd-analyze", "security", "--offline=true", str(UNIT)]
    checked = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if "offline" in checked.stderr:
        pytest.skip("systemd-analyze is too old for --offline")
    exposure = re.search(r"exposure level for seq2see.service: ([\d.]+)", checked.stdout)
    assert exposure, checked.stderr
    assert float(exposure[1]) < 2.0
