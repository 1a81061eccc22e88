"""Parts of the server without a server: block rule, prompt, desk, settings, dashboard."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from harbor_service.bad_setting import BadSetting
from harbor_service.command_line import parse_settings
from harbor_service.dashboard import render
from harbor_service.server import warn_when_open
from harbor_service.settings import Settings
from harbor_service.shell_agent import single_block
from harbor_service.trial_desk import DeskClosed, Entry, TrialDesk
from tests.harbor_service.harbor_server_process import ROOT
from trajectory.outcome import Outcome


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("```bash\nls -l\n```", "ls -l"),
        ("Sure:\n```sh\nls\n```\ndone", "ls"),
        ("```\nls\n```", "ls"),
        ("```bash\na\nb\n```", "a\nb"),
        ("```bash\nls\n```\n```bash\npwd\n```", None),
        ("```bash\n\n```", None),
        ("```bash\nls", None),
        ("ls", None),
        ("", None),
        ("```bash\nls \0\n```", None),
        ("```python\nls\n```", None),
    ],
)
def test_exactly_one_block_is_a_command(text: str, command: str | None) -> None:
    assert single_block(text) == command


def test_desk_never_runs_more_than_its_limit_and_serves_in_order() -> None:
    async def scenario() -> None:
        desk = TrialDesk(2)
        started: list[int] = []
        most = 0

        async def work(entry: Entry) -> Outcome:
            nonlocal most
            started.append(entry.number)
            most = max(most, len(desk.running))
            await asyncio.sleep(0.01)
            return Outcome(1.0, "Submitted")

        entries = [desk.start("t", "shell", None, work) for _ in range(7)]
        await asyncio.gather(*(desk.outcome_of(entry) for entry in entries))
        assert (most, started) == (2, sorted(started))
        assert not desk.running and not desk.queued and len(desk.results) == 7

    asyncio.run(scenario())


def test_trial_cancelled_before_its_first_step_leaves_the_desk() -> None:
    async def scenario() -> None:
        desk = TrialDesk(1)

        async def work(entry: Entry) -> Outcome:
            raise AssertionError("must not start")

        entry = desk.start("t", "shell", "owner", work)
        assert await desk.cancel_owned_by("owner") == 1
        assert (await desk.outcome_of(entry)).exit_status == "Aborted"
        assert await desk.close("over", 1) == 0
        with pytest.raises(DeskClosed):
            desk.start("t", "shell", None, work)

    asyncio.run(scenario())


def test_dashboard_escapes_what_comes_from_outside() -> None:
    async def scenario() -> None:
        desk = TrialDesk(1)

        async def work(entry: Entry) -> Outcome:
            return Outcome(1.0, "<script>alert(1)</script>")

        await desk.outcome_of(desk.start("<img src=x>", "shell", None, work))
        page = render(desk)
        assert "<script>" not in page and "<img" not in page and "&lt;img" in page

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "HARBOR_TASKS_DIR"),
        (["--harbor-tasks-dir", "nowhere"], "nowhere"),
        (["--harbor-tasks-dir", ".", "--max-concurrent", "0"], "--max-concurrent"),
        (["--harbor-tasks-dir", ".", "--max-queued", "-1"], "--max-queued"),
        (["--harbor-tasks-dir", ".", "--drain-seconds", "-1"], "--drain-seconds"),
        (["--harbor-tasks-dir", ".", "--drain-seconds", "inf"], "--drain-seconds"),
        (["--harbor-tasks-dir", ".", "--keep-trials-hours", "nan"], "--keep-trials-hours"),
        (["--harbor-tasks-dir", ".", "--keep-trials-gb", "-0.1"], "--keep-trials-gb"),
        (["--harbor-tasks-dir", ".", "--agent-timeout", "0"], "--agent-timeout"),
        (["--harbor-tasks-dir", ".", "--agent-timeout", "nan"], "--agent-timeout"),
        (["--harbor-tasks-dir", ".", "--port", "70000"], "--port"),
        (["--harbor-tasks-dir", ".", "--dashboard-port", "11000"], "--dashboard-port"),
        (["--harbor-tasks-dir", ".", "--agent-options", '{"max_turn": 1}'], "max_turn"),
        (["--harbor-tasks-dir", ".", "--agent-options", "[]"], "JSON object"),
        (["--harbor-tasks-dir", ".", "--token-file", "nowhere"], "--token-file"),
    ],
)
def test_setting_that_cannot_work_is_refused_by_name(flags: list[str], words: str) -> None:
    with pytest.raises(BadSetting, match=words):
        parse_settings(flags, {})


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False), ("trainer", False)],
)
def test_only_loopback_addresses_need_no_token(host: str, loopback: bool, caplog: pytest.LogCaptureFixture) -> None:
    warn_when_open(Settings(host=host, harbor_tasks_dir=Path()))
    assert ("OPEN TO THE NETWORK" in caplog.text) is not loopback


def test_empty_token_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    with pytest.raises(BadSetting, match="empty"):
        parse_settings(["--harbor-tasks-dir", "."], {"AGENT_SERVER_TOKEN_FILE": str(tmp_path / "token")})


def test_unknown_environment_ends_with_code_3_and_the_known_ones(tmp_path: Path) -> None:
    argv = [sys.executable, "agent_server.py", "--harbor-tasks-dir", str(tmp_path), "--environment", "moon"]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 3
    assert "docker" in ended.stderr and "Traceback" not in ended.stderr


def test_prompt_can_be_imported_without_harbor() -> None:
    code = "import sys, harbor_service.shell_prompt; sys.exit('harbor' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
