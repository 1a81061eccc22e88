"""Prompt and rules of the shell agent: the measured default of the local engine. Standard library only."""

from typing import Final

CHEAT_SHEET: Final = (
    "Useful commands: echo TEXT > FILE, touch FILE, mkdir -p DIR, cp A B, mv A B, rm FILE, cat FILE, sort FILE, "
    "head -n N FILE, wc -l FILE, grep WORD FILE, sed -i s/A/B/ FILE, chmod +x FILE. "
    "Use > to write output to a file and >> to append."
)
SYSTEM_PROMPT: Final = "You write bash commands. Answer with exactly one command in a code block.\n" + CHEAT_SHEET
# Generation ends at the fence that closes the first block; a fence after a line of prose opens one and is no end.
CLOSED_BLOCK: Final = r"(?s)```.*?```"
FORMAT_REMINDER: Final = "Give exactly one bash code block."


def user_turn(text: str) -> dict[str, str]:
    """A chat message of the user."""
    return {"role": "user", "content": text}


def command_turn(command: str) -> dict[str, str]:
    """A chat message of the assistant that holds `command` in one bash block."""
    return {"role": "assistant", "content": f"```bash\n{command}\n```"}


EXAMPLE_TURNS: Final[list[dict[str, str]]] = [
    user_turn("Show the files in this directory."),
    command_turn("ls -l"),
    user_turn("Print the text hello."),
    command_turn("echo hello"),
    user_turn("Write the last 2 lines of a.txt to b.txt."),
    command_turn("tail -n 2 a.txt > b.txt"),
]
