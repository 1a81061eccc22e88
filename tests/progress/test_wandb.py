"""Steps that W&B lacks, from real files of its offline mode; without a key nothing is asked of a server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from progress.launch import Launch
from progress.read_run import read_run
from progress.run_report import Kind
from progress.wandb_gaps import wandb_gaps
from progress.wandb_rows import WandbUnreadable, wandb_rows
from tests.progress.run_on_disk import RunOnDisk
from tests.progress.test_command import verify

ROOT = Path(__file__).resolve().parents[2]
LOG = """
import sys
from pathlib import Path
from local_engine.config import WandbConfig
from local_engine.wandb_log import WandbLog
settings, folder = WandbConfig("tasks", None, None, None), Path(sys.argv[1])
log = WandbLog(settings, run_id="one", folder=folder, run_config={}, warn=print)
for step in (0, 1, 3, 4):
    log.log(step, {"rollout/reward_mean": 0.25, "text": "x" * 40_000})
log.finish()
"""


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A save folder with an offline run that has rollouts 0, 1, 3 and 4; its records span blocks of the file."""
    folder = tmp_path_factory.mktemp("wandb")
    environment = {**os.environ, "WANDB_MODE": "offline", "HOME": str(folder), "WANDB_ERROR_REPORTING": "false"}
    subprocess.run([sys.executable, "-c", LOG, str(folder)], cwd=ROOT, env=environment, check=True, timeout=200)
    return folder


def test_steps_on_disk_and_not_in_an_offline_run_are_named(logged: Path, disk: RunOnDisk) -> None:
    disk.launch(engine="local")
    disk.steps(6)
    (file,) = logged.rglob("*.wandb")
    for place in (file, file.parent, logged):
        rows = wandb_rows(str(place), Launch())
        assert rows.steps == {0, 1, 3, 4}
        found = wandb_gaps(read_run(disk.traces), rows, Launch(engine="local"))
        assert [(finding.kind, finding.rollout_id) for finding in found] == [(Kind.WANDB_GAP, 2), (Kind.WANDB_GAP, 5)]
    done = verify(disk.traces, "--wandb", logged)
    assert "wandb_gap: rollout 2 is on disk and not in W&B" in done.stdout


def test_a_resume_that_will_make_it_drop_rows_is_foreseen(logged: Path, disk: RunOnDisk) -> None:
    disk.steps(5)
    (disk.save / "latest_checkpointed_iteration.txt").write_text("2")
    rows = wandb_rows(str(logged), Launch())
    (missing, dropped) = wandb_gaps(read_run(disk.traces), rows, Launch(engine="miles"))
    assert missing.rollout_id == 2
    assert dropped.rollout_id == 3
    assert "a resume goes on at rollout 3, and W&B has rows of 3, 4 already" in dropped.text
    # The local engine's rows carry their step as a metric, which W&B does not drop.
    assert len(wandb_gaps(read_run(disk.traces), rows, Launch(engine="local"))) == 1
    (disk.save / "latest_checkpointed_iteration.txt").write_text("release")
    assert len(wandb_gaps(read_run(disk.traces), rows, Launch(engine="miles"))) == 1


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.7, 0.999])
def test_a_torn_run_file_gives_the_rows_before_the_tear(logged: Path, tmp_path: Path, share: float) -> None:
    (file,) = logged.rglob("*.wandb")
    whole = file.read_bytes()
    torn = tmp_path / "run-torn.wandb"
    torn.write_bytes(whole[: int(len(whole) * share)])
    if share < 0.001:
        with pytest.raises(WandbUnreadable, match="is no W&B run file"):
            wandb_rows(str(torn), Launch())
    else:
        assert wandb_rows(str(torn), Launch()).steps <= {0, 1, 3, 4}


def test_flipped_bytes_in_a_run_file_are_no_crash(logged: Path, tmp_path: Path) -> None:
    (file,) = logged.rglob("*.wandb")
    shutil.copy(file, tmp_path / "run-x.wandb")
    content = bytearray(file.read_bytes())
    for place in range(7, len(content), 997):
        content[place] ^= 0xFF
    (tmp_path / "run-x.wandb").write_bytes(content)
    assert wandb_rows(str(tmp_path), Launch()).steps <= set(range(10))


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("somebody/project/run", "without a key W&B cannot be asked; set WANDB_API_KEY"),
        ("run", "name an online run as ENTITY/PROJECT/RUN"),
        ("a/b/c/d", "name an online run as ENTITY/PROJECT/RUN"),
        ("/no/such/folder", "there is no such folder"),
        (".", "no run-*.wandb below it"),
    ],
)
def test_without_a_key_or_a_folder_the_way_out_is_said(
    run: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WandbUnreadable, match=said.replace("*", r"\*").replace(".w", r"\.w")):
        wandb_rows(run, Launch())
