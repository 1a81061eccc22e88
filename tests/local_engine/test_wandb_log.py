"""W&B is silent unless asked for, works without a network, holds no key, and never ends a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
KEY = "0123456789abcdef0123456789abcdef01234567"

START = """
import os, sys, time
from pathlib import Path
from local_engine.config import WandbConfig
from local_engine.wandb_log import WandbLog
folder = Path(sys.argv[1])
log = WandbLog(WandbConfig(project="terminal tasks", run_name="first", group="g"), run_id="local/2026 1",
               folder=folder, run_config={"lr": 3e-4}, warn=lambda text: print("WARN", text, flush=True))
print("active", log.active, flush=True)
"""


def program(tmp_path: Path, source: str, **environment: str) -> list[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    done = subprocess.run(
        [sys.executable, "-c", START + textwrap.dedent(source), str(tmp_path / "run")],
        cwd=ROOT,
        env={**kept, "HOME": str(tmp_path), "WANDB_ERROR_REPORTING": "false", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_not_asked_for_it_is_not_even_imported(tmp_path: Path) -> None:
    source = f"""
import sys
from pathlib import Path
from local_engine.wandb_log import WandbLog
log = WandbLog(None, run_id="x", folder=Path({str(tmp_path / "none")!r}), run_config={{}}, warn=print)
log.log(0, {{"a": 1.0}})
log.finish()
sys.exit("wandb" in sys.modules or log.active)
"""
    subprocess.run([sys.executable, "-c", source], cwd=ROOT, check=True, timeout=120)
    assert not (tmp_path / "none").exists()


def test_offline_it_writes_the_run_without_a_key(tmp_path: Path) -> None:
    said = program(
        tmp_path,
        """
        for step in range(3):
            log.log(step, {"rollout/reward_mean": 0.25 * step})
        log.finish()
        """,
        WANDB_MODE="offline",
    )
    assert said == ["active True"]
    (file,) = (tmp_path / "run").rglob("run-*.wandb")
    content = file.read_bytes()
    assert b"rollout/reward_mean" in content
    assert b"rollout/step" in content


def test_a_key_in_the_environment_reaches_no_file(tmp_path: Path) -> None:
    said = program(tmp_path, "log.log(0, {'a': 1.0}); log.finish()", WANDB_MODE="offline", WANDB_API_KEY=KEY)
    assert said == ["active True"]
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes(), file


def test_without_a_key_it_says_so_at_once_and_the_run_goes_on(tmp_path: Path) -> None:
    said = program(tmp_path, "log.log(0, {'a': 1.0}); log.finish()")
    assert len(said) == 2
    assert "no API key" in said[0]
    assert "WANDB_MODE=offline" in said[0]
    assert said[1] == "active False"


@pytest.mark.long
def test_a_server_that_does_not_answer_costs_one_warning(tmp_path: Path) -> None:
    said = program(
        tmp_path,
        "log.log(0, {'a': 1.0}); log.log(1, {'a': 1.0}); log.finish()",
        WANDB_API_KEY=KEY,
        WANDB_BASE_URL="http://127.0.0.1:9",
        WANDB_INIT_TIMEOUT="3",
    )
    assert [line.split()[0] for line in said] == ["WARN", "active"]
    assert "the run goes on" in said[0]
    assert KEY not in "".join(said)


def test_its_service_killed_in_the_middle_costs_one_warning_at_most(tmp_path: Path) -> None:
    said = program(
        tmp_path,
        f"""
        log.log(0, {{"a": 1.0}})
        def children(parent):
            found = []
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit():
                    try:
                        if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == parent:
                            found.append(int(entry.name))
                    except (FileNotFoundError, ProcessLookupError):
                        pass
            return found
        own = children(os.getpid())
        for child in own:
            os.kill(child, {int(signal.SIGKILL)})
        print("killed", bool(own))
        time.sleep(0.5)
        for step in range(5):
            log.log(step, {{"a": 1.0}})
        log.finish()
        print("went on", flush=True)
        """,
        WANDB_MODE="offline",
    )
    assert said[:2] == ["active True", "killed True"]
    assert said[-1] == "went on"
    assert len([line for line in said if line.startswith("WARN")]) <= 1
