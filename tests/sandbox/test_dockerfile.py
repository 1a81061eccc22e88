"""A Dockerfile is carried out as far as it is understood; everything else is an error that names its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from harbor.environments.base import SandboxBuildFailedError

from sandbox.build import Build
from sandbox.dockerfile import Copy, Env, Run, Workdir, fill_in, parse
from sandbox.trial import Sandbox

BASE_ENV = {"PATH": "/usr/bin:/bin", "HOME": "/root"}


def test_the_understood_part_becomes_steps() -> None:
    steps = parse(
        "# syntax=docker/dockerfile:1\nARG VERSION=3\nFROM ubuntu:24.04\nLABEL a=b\nWORKDIR /app\n"
        'ENV A=1 B=\'two words\'\nENV OLD style value\nCOPY --chmod=755 a.sh b.sh bin/\nADD ["a b", "/x"]\n'
        'RUN echo a \\\n  # a comment between\n  && echo b\nRUN ["echo", "a b"]\nUSER root\nCMD ["bash"]\n'
    )
    assert steps == [
        Env(2, (("VERSION", "3"),), build_only=True),
        Workdir(5, "/app"),
        Env(6, (("A", "1"), ("B", "two words"))),
        Env(7, (("OLD", "style value"),)),
        Copy(8, ("a.sh", "b.sh"), "bin/", 0o755),
        Copy(9, ("a b",), "/x", None),
        Run(10, "echo a && echo b"),
        Run(13, "exec echo 'a b'"),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("WORKDIR /app", "line 1: WORKDIR before FROM"),
        ("", "there is no FROM"),
        ("FROM a\nFROM b", "line 2: a second FROM"),
        ("FROM a\nENTRYPOINT x", "ENTRYPOINT is not supported"),
        ("FROM a\nVOLUME /x", "VOLUME is not supported"),
        ("FROM a\nHEALTHCHECK NONE", "HEALTHCHECK is not supported"),
        ("FROM a\nFROBNICATE x", "FROBNICATE is not supported"),
        ("FROM a\nUSER agent", "USER agent"),
        ('FROM a\nSHELL ["zsh"]', "SHELL"),
        ("FROM a\nCOPY --from=b x y", "COPY --from=b is not supported"),
        ("FROM a\nCOPY --chown=me x y", "--chown=me"),
        ("FROM a\nCOPY x", "a source and a target"),
        ("FROM a\nCOPY <<EOF /x\nhi\nEOF", "here-document"),
        ("FROM a\nRUN <<EOF\nhi\nEOF", "here-document"),
        ("FROM a\nRUN --mount=type=cache,target=/x true", "RUN --mount"),
        ("FROM a\nADD https://example.com/x /x", "no network"),
        ("FROM a\nADD a.tar.gz /x", "archives"),
        ("FROM a\nENV A", "no value"),
        ("FROM a\nENV A=1 B", "NAME=value"),
        ("FROM a\nRUN", "RUN without an argument"),
        ("FROM a\nCOPY 'x y", "cannot be read"),
        ("# escape=`\nFROM a", "escape character"),
    ],
)
def test_what_is_not_understood_is_an_error(text: str, reason: str) -> None:
    with pytest.raises(SandboxBuildFailedError, match="line") as caught:
        parse(text)
    assert reason in str(caught.value)


def test_variables_are_filled_in() -> None:
    assert fill_in("$A/${B}x\\$A$NONE", {"A": "1", "B": "2"}, 1) == "1/2x$A"
    with pytest.raises(SandboxBuildFailedError, match="plain variables"):
        fill_in("${A:-b}", {}, 1)


@pytest.fixture
def context(tmp_path: Path) -> Path:
    folder = tmp_path / "environment"
    (folder / "data" / "deep").mkdir(parents=True)
    (folder / "data" / "deep" / "a.txt").write_text("a\n")
    (folder / "run.sh").write_text("#!/bin/bash\necho ran\n")
    (folder / "one.py").write_text("1\n")
    (folder / "two.py").write_text("2\n")
    return folder


async def build(box: Sandbox, context: Path, lines: str) -> Build:
    done = Build(box, context, BASE_ENV)
    await done.run(parse("FROM x\n" + lines))
    return done


async def test_steps_are_carried_out_in_order(box: Sandbox, context: Path) -> None:
    done = await build(
        box,
        context,
        "ARG NAME=deep\nWORKDIR /srv\nWORKDIR app\nENV P=/opt/$NAME PATH=/opt/bin:$PATH\nCOPY data/ $P/\n"
        "COPY --chmod=700 run.sh /opt/bin/run\nCOPY *.py ./\nCOPY . /all\nRUN run > out && mv out moved\n"
        "COPY one.py moved\n",
    )
    assert done.workdir == "/srv/app"
    assert done.env == {"P": "/opt/deep", "PATH": "/opt/bin:/usr/bin:/bin"}
    ended = await box.run(
        "cat /opt/deep/deep/a.txt moved two.py; stat -c %a /opt/bin/run; ls /all", "/srv/app", BASE_ENV
    )
    assert ended.stdout == "a\n1\n2\n700\ndata\none.py\nrun.sh\ntwo.py\n"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("RUN echo no >&2; exit 3", "line 2: RUN echo no >&2; exit 3 ended with code 3"),
        ("COPY none /x", "none is not in"),
        ("COPY ../secret /x", "lies outside"),
        ("COPY run.sh /usr/local/bin/", "/usr is read-only"),
        ("COPY run.sh /etc/x", "/etc is read-only"),
        ("WORKDIR /app/../..", "'..' is not supported"),
    ],
)
async def test_a_failed_step_names_its_line(box: Sandbox, context: Path, line: str, reason: str) -> None:
    (context.parent / "secret").write_text("ours")
    with pytest.raises(SandboxBuildFailedError) as caught:
        await build(box, context, line)
    assert reason in str(caught.value)


async def test_a_source_link_out_of_the_task_is_refused(box: Sandbox, context: Path) -> None:
    (context / "link").symlink_to("/etc/hostname")
    with pytest.raises(SandboxBuildFailedError, match="lies outside"):
        await build(box, context, "COPY link /x")
