"""A polite client beside attacks, as `bench/attacks` measures it; these take about a minute each."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["crowd", "pipelining", "broken_log"])
def test_a_polite_client_is_served_beside(trained: Path, attack: str):
    words = [sys.executable, "-m", f"bench.attacks.{attack}", str(trained)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads(ended.stdout)["repelled"] is True
