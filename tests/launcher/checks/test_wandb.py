from __future__ import annotations

from pathlib import Path

import pytest

from launcher.checks.wandb import check_wandb_key
from launcher.preflight import Status

NETRC = "machine api.wandb.ai login user password canary\n"


def write_netrc(path: Path, text: str = NETRC) -> None:
    path.write_text(text)
    path.chmod(0o600)


@pytest.mark.parametrize(
    ("environment", "netrc", "expected"),
    [
        ({}, None, Status.FAILURE),
        ({"WANDB_MODE": "offline"}, None, Status.OK),
        ({"WANDB_MODE": "online"}, None, Status.FAILURE),
        ({"WANDB_API_KEY": "canary"}, None, Status.OK),
        ({}, NETRC, Status.OK),
        ({"WANDB_BASE_URL": "https://wandb.example.com"}, NETRC, Status.FAILURE),
        ({"WANDB_BASE_URL": "https://api.wandb.ai"}, NETRC, Status.OK),
    ],
)
def test_a_wandb_key_is_looked_for_and_never_shown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    netrc: str | None,
    expected: Status,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    if netrc is not None:
        write_netrc(tmp_path / ".netrc", netrc)
    finding = check_wandb_key(environment)
    assert finding.status is expected
    assert "canary" not in finding.sentence + finding.way_out


def test_a_netrc_named_by_its_variable_takes_the_place_of_the_usual_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_netrc(tmp_path / "elsewhere")
    assert check_wandb_key({"NETRC": str(tmp_path / "elsewhere")}).status is Status.OK
    assert check_wandb_key({"NETRC": str(tmp_path / "none")}).status is Status.FAILURE
