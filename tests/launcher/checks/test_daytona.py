"""Daytona's settings. STUB: a server of ours stands for Daytona; no call ever went to the real one from here."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.checks.daytona import asked_minutes, check_daytona_key, check_daytona_lifetimes
from launcher.preflight import Status
from tests.launcher.checks.http_answers import http_answers

ROUTE = "/api/api-keys/current"


def test_a_sandbox_must_outlive_a_trial() -> None:
    assert check_daytona_lifetimes(150, 1440, 7200).status is Status.OK
    assert check_daytona_lifetimes(0, -1, 7200).status is Status.OK  # 0: never stopped
    short = check_daytona_lifetimes(119, 1440, 7200)
    assert short.status is Status.FAILURE and "119" in short.sentence and "120" in short.sentence


def test_without_a_key_nobody_is_asked() -> None:
    with http_answers({ROUTE: (200, "{}")}) as daytona:
        found = check_daytona_key({"DAYTONA_API_URL": f"{daytona.url}/api"})
    assert found.status is Status.WARNING and "was not asked" in found.sentence
    assert daytona.asked == []


@pytest.mark.parametrize(
    ("status", "found"), [(200, Status.OK), (401, Status.FAILURE), (403, Status.FAILURE), (500, Status.WARNING)]
)
def test_with_a_key_daytona_says_whether_it_takes_it(status: int, found: Status, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("canary-key\n")
    path.chmod(0o600)
    with http_answers({ROUTE: (status, "{}")}, token="canary-key") as daytona:
        url = f"{daytona.url}/api"
        for given in ({"DAYTONA_API_KEY": "canary-key"}, {"DAYTONA_API_KEY_FILE": str(path)}):
            finding = check_daytona_key({"DAYTONA_API_URL": url, **given})
            assert finding.status is found
            assert "canary" not in finding.sentence + finding.way_out
    assert [path for path, _ in daytona.asked] == [ROUTE, ROUTE]


def test_a_daytona_that_cannot_be_reached_fails_nothing() -> None:
    found = check_daytona_key({"DAYTONA_API_URL": "http://127.0.0.1:9/api", "DAYTONA_API_KEY": "k"})
    assert found.status is Status.WARNING and "does not answer" in found.sentence


def test_a_url_with_a_password_is_refused_and_not_repeated() -> None:
    found = check_daytona_key({"DAYTONA_API_URL": "http://u:canary@127.0.0.1:9/api", "DAYTONA_API_KEY": "k"})
    assert found.status is Status.FAILURE
    assert "canary" not in found.sentence + found.way_out


def test_lifetimes_are_those_that_the_agent_function_sends() -> None:
    assert asked_minutes({}) == (None, None)
    assert asked_minutes({"SANDBOX_AUTO_STOP_MINUTES": "150"}) == (150, None)
    for text in ("x", "-5", "0", "1e3", "\u0663", "9" * 5000):
        with pytest.raises(ValueError, match="is no number of minutes"):
            asked_minutes({"SANDBOX_AUTO_DELETE_MINUTES": text})


@pytest.mark.parametrize("content", ["", "two\nlines", "k" * 100_000])
def test_a_key_file_without_a_key_is_a_failure(content: str, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(content)
    path.chmod(0o600)
    assert check_daytona_key({"DAYTONA_API_KEY_FILE": str(path)}).status is Status.FAILURE
    assert check_daytona_key({"DAYTONA_API_KEY_FILE": str(tmp_path / "none")}).status is Status.FAILURE
