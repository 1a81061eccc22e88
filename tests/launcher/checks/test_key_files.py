from __future__ import annotations

from pathlib import Path

import pytest

from launcher.checks.key_files import check_key_file, check_no_secrets, key_files
from launcher.preflight import Status


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        ([], {"DAYTONA_API_KEY": "canary"}),
        ([], {"PROXY": "http://user:canary@proxy:3128"}),
        (["--wandb-key", "canary"], {}),
        (["--wandb-key=canary"], {}),
        (["--sglang-api-key", "canary"], {}),
        (["WANDB_API_KEY=canary"], {}),
        (["--agent-server-url", "http://u:canary@h:1"], {}),
    ],
)
def test_a_secret_in_what_a_job_shows_fails_without_being_repeated(
    arguments: list[str], environment: dict[str, str]
) -> None:
    finding = check_no_secrets(arguments, environment)
    assert finding.status is Status.FAILURE
    assert "canary" not in finding.sentence + finding.way_out


def test_flags_that_name_a_field_of_the_data_are_no_secrets() -> None:
    arguments = ["--input-key", "prompt", "--metadata-key", "metadata", "--max-tokens-per-gpu", "16384"]
    environment = {"DAYTONA_API_KEY_FILE": "/keys/daytona", "AGENT_SERVER_URL": "http://h:1"}
    assert check_no_secrets(arguments, environment).status is Status.OK


@pytest.mark.parametrize(
    ("content", "mode", "expected"),
    [
        ("canary\n", 0o600, Status.OK),
        ("canary\n", 0o640, Status.WARNING),
        ("canary\n", 0o606, Status.WARNING),
        (" \n", 0o600, Status.FAILURE),
        (None, 0, Status.FAILURE),
    ],
)
def test_a_key_file_holds_something_for_its_owner_only(
    tmp_path: Path, content: str | None, mode: int, expected: Status
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    finding = check_key_file("DAYTONA_API_KEY_FILE", path)
    assert finding.status is expected
    assert "canary" not in finding.sentence
    assert "DAYTONA_API_KEY_FILE" in finding.check


def test_the_key_files_are_those_that_variables_name() -> None:
    environment = {
        "DAYTONA_API_KEY_FILE": "/keys/daytona",
        "AGENT_SERVER_TOKEN_FILE": "/keys/token",
        "HARBOR_ADMIN_SECRET_FILE": "",
        "HF_TOKEN_FILE": "~nobody-of-this-name/token",
        "LOG_FILE": "/log",
    }
    assert key_files(environment) == {
        "DAYTONA_API_KEY_FILE": Path("/keys/daytona"),
        "AGENT_SERVER_TOKEN_FILE": Path("/keys/token"),
        "HF_TOKEN_FILE": Path("~nobody-of-this-name/token"),
    }
