"""How each agent's model must answer to act, to finish and to be misunderstood."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.harbor_service.harbor_model_stub import Reply, bash


@dataclass(frozen=True)
class Script:
    """One agent as its model sees it; `text` is the answer that runs a command."""

    name: str
    text: Callable[[str], Reply]
    done: tuple[Reply, ...]
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    misunderstood: Reply = field(default_factory=lambda: Reply("I do not know what to do."))
    exit_status: str = "Submitted"


def _mini(command: str) -> Reply:
    return Reply(f"THOUGHT: next.\n\n```mswea_bash_command\n{command}\n```")


def _mini_tools(command: str, name: str = "bash") -> Reply:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps({"command": command})},
    }
    return Reply("", finish_reason="tool_calls", message={"tool_calls": [call], "reasoning_content": "next"})


def _terminus(*commands: str, complete: bool = False) -> Reply:
    keys = [{"keystrokes": f"{command}\n", "duration": 0.2} for command in commands]
    answer = {"analysis": "a", "plan": "p", "commands": keys, "task_complete": complete}
    return Reply(json.dumps(answer), message={"reasoning_content": "thinking"})


_SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
SCRIPTS = {
    "shell": Script(
        "shell", bash, (bash("submit"),), {"end_on_success": False, "submit_command": "submit", "max_turns": 10}
    ),
    "mini": Script("mini-swe-agent", _mini, (_mini(_SUBMIT),)),
    "mini-tools": Script(
        "mini-swe-agent",
        _mini_tools,
        (_mini_tools(_SUBMIT),),
        {"tools": True},
        misunderstood=_mini_tools("ls", name="browser"),
    ),
    "terminus": Script("terminus-2", _terminus, (_terminus(complete=True), _terminus(complete=True))),
}
