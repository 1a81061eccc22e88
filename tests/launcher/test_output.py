from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.output import say, write

ROOT = Path(__file__).parents[2]


def test_what_is_written_arrives_at_once() -> None:
    out = io.StringIO()
    assert write(out, "größe\n") is None
    assert out.getvalue() == "größe\n"


def test_nothing_that_is_named_acts_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say("no folder \x1b[2J\x1b]0;title\x07 \u202e \udcff")
    assert capsys.readouterr().err == "no folder \\x1b[2J\\x1b]0;title\\x07 \\u202e \\udcff\n"


@pytest.mark.parametrize("full", [True, False])
def test_a_stream_that_takes_nothing_does_not_change_how_a_process_ends(full: bool) -> None:
    code = (
        "import sys\nfrom launcher.output import say, write\n"
        "say('begins')\ntrouble = write(sys.stdout, 'text')\nassert trouble, trouble\n"
        "assert write(sys.stdout, 'more') is None\nsay('ends')\nsys.exit(7)\n"
    )
    if full:
        descriptor = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, descriptor = os.pipe()
        os.close(reader)
    for errors in (subprocess.PIPE, descriptor):
        ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=descriptor, stderr=errors, check=False)
        assert ended.returncode == 7, ended.stderr
        assert errors == descriptor or ended.stderr == b"begins\nends\n"
    os.close(descriptor)
