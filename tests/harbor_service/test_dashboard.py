"""The dashboard in a real headless browser, which tests/browser.py installs."""

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import headless_browser, note_events
from tests.free_port import free_port
from tests.harbor_service.harbor_model_stub import ModelStub, Reply
from tests.harbor_service.harbor_server_process import AgentServerProcess, write_task

SCRIPT = "<script>window.planted = 1</script><img src=x onerror='window.planted = 2'></pre>"
TASK = "<img src=x onerror='window.planted = 3'>"
TOKEN = "t0ken-canary"
KEY = "k3y-canary"
TOML = 'schema_version = "1.2"\n[verifier]\ntimeout_sec = 20.0\n[environment]\nallow_internet = false\n'
VERIFIER = (
    f'#!/bin/bash\necho "the verifier says {SCRIPT.replace(chr(34), "")}"\necho 0.5 > /logs/verifier/reward.txt\n'
)
PATIENCE = 60_000  # milliseconds: the machine may be busy
expect.set_options(timeout=PATIENCE)


@dataclass
class Shown:
    """A server with a dashboard, its model and an open page that notes what it asks for and says."""

    server: AgentServerProcess
    model: ModelStub
    page: Page
    url: str
    requested: list[str]
    said: list[str]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with headless_browser() as started:
        yield started


@pytest.fixture
def shown(tmp_path: Path, model: ModelStub, browser: Browser) -> Iterator[Shown]:
    tasks = tmp_path / "tasks"
    for name in ("mkdir-1", TASK):
        write_task(tasks, name, task_toml=TOML, test_sh=VERIFIER)
    (tmp_path / "token").write_text(TOKEN)
    port = free_port()
    flags = ("--dashboard-port", str(port), "--max-concurrent", "1", "--token-file", str(tmp_path / "token"))
    server = AgentServerProcess(tmp_path, tasks, *flags, environ={"DAYTONA_API_KEY": KEY})
    server.client.headers["Authorization"] = f"Bearer {TOKEN}"
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    result = Shown(server, model, page, f"http://127.0.0.1:{port}", [], [])
    note_events(page, result.requested, result.said)
    yield result
    page.close()
    server.close()


def run(shown: Shown, instance_id: str) -> dict[str, Any]:
    return shown.server.run(instance_id, shown.model.base_url, agent_options={"end_on_success": False}).json()


def check_nothing_ran(shown: Shown) -> None:
    assert shown.page.evaluate("window.planted") is None
    assert shown.page.locator("img, script, iframe, form, link").count() == 0
    assert all(url.startswith(shown.url) for url in shown.requested)
    assert not shown.said


def test_a_person_sees_trials_wait_run_and_end_and_what_they_did(shown: Shown, tmp_path: Path) -> None:
    seen = threading.Event()

    def answer(body: dict[str, Any]) -> Reply:
        seen.wait(PATIENCE / 1000)
        return Reply(f"Now: {SCRIPT} {KEY}\n```bash\necho '{TOKEN} <u>'\n```")

    shown.model.answer = answer
    page = shown.page
    page.goto(shown.url)
    expect(page.locator("h1")).to_have_text("Agent server")
    expect(page.locator("table")).to_have_count(0)
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(run, shown, name) for name in (TASK, "mkdir-1")]
        # The page comes again by itself: nothing is clicked until the results are there.
        expect(page.locator("#running tr:nth-child(2) td:nth-child(4)")).to_have_text(re.compile(r"[\d.]+"))
        expect(page.locator("#queued tr")).to_have_count(2)
        seen.set()
        assert [job.result()["exit_status"] for job in jobs] == ["TurnLimitExceeded"] * 2
    expect(page.locator("#results tr")).to_have_count(3)
    row = page.locator("#results tr", has_text=TASK)
    expect(row.locator("td:nth-child(4)")).to_have_text("TurnLimitExceeded")
    expect(row.locator("td:nth-child(5)")).to_have_text("0.5")
    expect(page.locator("#exit-statuses tr:nth-child(2)")).to_have_text("TurnLimitExceeded2")
    check_nothing_ran(shown)

    row.locator("a").click()
    expect(page.locator("h1")).to_contain_text(TASK)
    expect(page.locator("#facts")).to_contain_text("TurnLimitExceeded")
    said = page.locator(".assistant pre").last
    expect(said).to_contain_text(SCRIPT)
    expect(said).to_contain_text("[hidden]")
    expect(page.locator(".command pre").first).to_have_text("Exit code 0. Output:\n[hidden] <u>\n")
    expect(page.locator("#verifier pre")).to_contain_text("the verifier says <script>")
    assert TOKEN not in page.content() and KEY not in page.content()
    check_nothing_ran(shown)
    page.screenshot(path=tmp_path / "trial.png")
    page.get_by_text("All trials").click()
    expect(page.locator("#results tr")).to_have_count(3)
    page.goto(f"{shown.url}/trials/99")
    expect(page.locator("h1")).to_have_text("Unknown trial")


def test_a_running_trial_can_be_read_while_it_runs(shown: Shown) -> None:
    seen = threading.Event()

    def answer(body: dict[str, Any]) -> Reply:
        if len(shown.model.requests) > 1:
            seen.wait(PATIENCE / 1000)
        return Reply("```bash\necho first\n```")

    shown.model.answer = answer
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(run, shown, "mkdir-1")
        page = shown.page
        page.goto(shown.url)
        page.locator("#running a").click()
        expect(page.locator("#facts")).to_contain_text("running")
        expect(page.locator(".command pre").first).to_have_text("Exit code 0. Output:\nfirst\n")
        seen.set()
        expect(page.locator("#facts")).to_contain_text("ended")
        assert job.result()["reward"] == 0.5


def test_the_page_listens_on_loopback_only(shown: Shown) -> None:
    port = int(shown.url.rpartition(":")[2])
    connections = psutil.Process(shown.server.process.pid).net_connections()
    assert {c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN and c.laddr.port == port} == {"127.0.0.1"}
