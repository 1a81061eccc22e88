"""The helper that walks through a page finds what a page promises and does not keep."""

import time
from pathlib import Path

import psutil
import pytest

from tests.docs.walkthrough import fenced_blocks, matches, walk


def page(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text)
    return path


def runs(pid: int) -> bool:
    """Whether the process is there and has not ended, whoever has yet to wait for it."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_blocks_have_kind_text_and_line() -> None:
    blocks = fenced_blocks("a\n\n```sh long\necho 1\n```\n\n```\nplain\n```\n")
    assert [(block.kind, block.text, block.line) for block in blocks] == [
        ("sh long", "echo 1\n", 3),
        ("", "plain\n", 7),
    ]


def test_dots_stand_for_text_and_for_lines() -> None:
    assert matches("checked in ... s, 0 broken\n", "checked in 1.3 s, 0 broken\n")
    assert matches("first\n...\nlast\n", "first\na\nb\nlast\n")
    assert not matches("first\n...\nlast\n", "first\na\nb\n")
    assert not matches("0 broken", "10 broken")


def test_one_shell_reads_all_blocks(tmp_path: Path) -> None:
    text = "```sh\nWORD=hello\ncd /\n```\n```sh\necho $WORD $PWD\n```\n```output\nhello /\n```\n"
    walk(page(tmp_path, text), tmp_path)


def test_a_command_that_fails_is_named_by_its_line(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"page.md, line 4: ended with code 1"):
        walk(page(tmp_path, "```sh\ntrue\n```\n```sh\nls /nowhere || false\n```\n"), tmp_path)


def test_another_output_than_the_printed_one_is_named_by_its_line(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"page.md, line 4: expected"):
        walk(page(tmp_path, "```sh\necho 2\n```\n```output\n3\n```\n"), tmp_path)


def test_long_blocks_run_only_when_asked_for(tmp_path: Path) -> None:
    text = "```sh\ntouch short\n```\n```sh long\ntouch long\n```\n```output\nsomething else\n```\n"
    walk(page(tmp_path, text), tmp_path)
    assert (tmp_path / "short").exists() and not (tmp_path / "long").exists()


def test_what_a_page_left_in_the_background_ends_with_it(tmp_path: Path) -> None:
    walk(page(tmp_path, "```sh\nsleep 300 &\necho $! > pid\n```\n"), tmp_path)
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 60
    while runs(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not runs(pid)
