"""What a trial left to be read, and that no text of it gets onto a page as it is."""

import asyncio
import json
from pathlib import Path

import pytest

from harbor_service.dashboard import render, render_trial
from harbor_service.trial_desk import Entry, TrialDesk
from harbor_service.trial_record import MessageLog, read_record
from trajectory.outcome import Outcome

SCRIPT = "<script>window.planted = 1</script><img src=x onerror='window.planted = 2'></pre>"


def test_every_text_from_outside_is_escaped() -> None:
    async def scenario() -> None:
        desk = TrialDesk(1)

        async def work(entry: Entry) -> Outcome:
            return Outcome(1.0, SCRIPT, eval_report={"reason": SCRIPT})

        entry = desk.start("<img src=x>\ud800", "<b>", None, work, "<i>")
        await desk.outcome_of(entry)
        record = read_record(Path("/nowhere"))
        for page in (render(desk), render_trial(entry, record)):
            assert not any(part in page for part in ("<script>", "<img", "<b>", "<i>", "\ud800"))
            assert "&lt;img" in page
            page.encode()

    asyncio.run(scenario())


def test_a_record_is_read_from_messages_or_from_harbors_own_format(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    steps = [
        {"source": "user", "message": "do it"},
        {
            "source": "agent",
            "message": "",
            "tool_calls": [{"function_name": "bash", "arguments": {"command": "ls"}}],
            "observation": {"results": [{"content": "a file"}]},
        },
        "not a step",
    ]
    (tmp_path / "agent" / "trajectory.json").write_text(json.dumps({"steps": steps}))
    record = read_record(tmp_path)
    assert [(message.role, message.text) for message in record.messages] == [
        ("user", "do it"),
        ("command", 'bash {"command": "ls"}'),
        ("tool", "a file"),
    ]
    MessageLog(tmp_path).append([{"role": "assistant", "content": "half \ud800"}])
    with (tmp_path / "messages.jsonl").open("a") as file:
        file.write('[]\n{"role": "torn')
    assert [message.text for message in read_record(tmp_path).messages] == ["half \ud800"]


@pytest.mark.parametrize("content", ["", "[" * 100_000, "{}", "[1]", '{"steps": 1}', '{"exception_info": []}', "\0"])
def test_nothing_in_a_trials_folder_breaks_the_page(tmp_path: Path, content: str) -> None:
    (tmp_path / "agent").mkdir()
    for name in ("messages.jsonl", "result.json", "agent/trajectory.json"):
        (tmp_path / name).write_text(content)
    record = read_record(tmp_path)
    assert (record.messages, record.verifier_output, record.error) == ((), "", "")


def test_a_link_that_a_container_planted_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(json.dumps({"steps": [{"source": "user", "message": "stolen"}]}))
    trial, linked = tmp_path / "trial", tmp_path / "linked"
    (trial / "verifier").mkdir(parents=True)
    (trial / "verifier" / "test-stdout.txt").symlink_to(secret)
    (trial / "messages.jsonl").symlink_to(secret)
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "trajectory.json").write_text(secret.read_text())
    (trial / "agent").symlink_to(tmp_path / "hidden")
    linked.symlink_to(trial)
    for folder in (trial, linked):
        record = read_record(folder)
        assert (record.messages, record.verifier_output) == ((), "")


def test_a_disk_that_is_full_costs_the_messages_not_the_trial(tmp_path: Path) -> None:
    log = MessageLog(tmp_path / "gone")
    for _ in range(2):
        log.append([{"role": "user", "content": "x"}])
    assert not (tmp_path / "gone").exists()
