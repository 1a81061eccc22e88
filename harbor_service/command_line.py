"""Flags and environment of `agent_server.py`."""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from harbor_service.agent_options import BadAgentOptions
from harbor_service.bad_setting import BadSetting
from harbor_service.environments import LOCAL, PROVIDERS
from harbor_service.own_agents import check_default_options
from harbor_service.secret import Secret, SecretFile
from harbor_service.settings import Settings


def parse_settings(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings of a command line.

    Raises:
        BadSetting: a value that cannot work. SystemExit: a flag that argparse refuses, or --help.
    """
    flags = _parser().parse_args(argv)
    tasks_dir: str | None = flags.harbor_tasks_dir or environ.get("HARBOR_TASKS_DIR")
    if not tasks_dir:
        raise BadSetting("no folder of tasks: give --harbor-tasks-dir or set HARBOR_TASKS_DIR")
    return Settings(
        host=flags.host,
        port=flags.port,
        dashboard_port=flags.dashboard_port,
        harbor_tasks_dir=Path(tasks_dir),
        trials_dir=Path(flags.trials_dir),
        environment=flags.environment,
        environment_options=tuple(flags.environment_option),
        unsafe_no_sandbox=flags.unsafe_no_sandbox,
        agent_options=_agent_options(flags.agent_options),
        max_concurrent=flags.max_concurrent,
        max_queued=flags.max_queued,
        agent_timeout=flags.agent_timeout,
        setup_timeout=flags.setup_timeout,
        drain_seconds=flags.drain_seconds,
        shutdown_grace=flags.shutdown_grace,
        keep_trials_hours=flags.keep_trials_hours,
        keep_trials_gb=flags.keep_trials_gb,
        token=_secret_file("--token-file", flags.token_file or environ.get("AGENT_SERVER_TOKEN_FILE")),
        admin_secret=Secret(environ["HARBOR_ADMIN_SECRET"])
        if environ.get("HARBOR_ADMIN_SECRET")
        else _secret_file("HARBOR_ADMIN_SECRET_FILE", environ.get("HARBOR_ADMIN_SECRET_FILE")),
        ready_file=Path(flags.ready_file) if flags.ready_file else None,
        parent_pid=flags.parent_pid,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agent_server.py",
        description="Runs one Harbor trial for each POST /run and answers with its reward.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    defaults = Settings(harbor_tasks_dir=Path())
    add("--host", default=defaults.host, help="address to listen on (default: %(default)s)")
    add("--port", type=int, default=defaults.port, help="port, 0 for a free one (default: %(default)s)")
    add("--dashboard-port", type=int, default=0, help="page of trials on 127.0.0.1, 0 for none (default: 0)")
    add("--max-concurrent", type=int, default=defaults.max_concurrent, help="trials at once (default: %(default)s)")
    add("--max-queued", type=int, default=defaults.max_queued, help="trials that may wait, beyond: 429 (%(default)s)")
    add("--agent-timeout", type=float, default=defaults.agent_timeout, help="seconds of an agent (%(default)s)")
    add("--setup-timeout", type=float, default=defaults.setup_timeout, help="seconds of its setup (%(default)s)")
    add(
        "--drain-seconds",
        type=float,
        default=defaults.drain_seconds,
        help="seconds that SIGTERM leaves running trials; a second SIGTERM ends them at once (%(default)s)",
    )
    add("--shutdown-grace", type=float, default=defaults.shutdown_grace, help="seconds to end trials (%(default)s)")
    add("--harbor-tasks-dir", help="task folders; default: HARBOR_TASKS_DIR")
    add("--trials-dir", default="trials", help="where trials leave their files (default: %(default)s)")
    add(
        "--keep-trials-hours",
        type=float,
        default=defaults.keep_trials_hours,
        help="trial folders older than this are removed, inf for never (default: %(default)s)",
    )
    add(
        "--keep-trials-gb",
        type=float,
        default=defaults.keep_trials_gb,
        help="beyond this in all the oldest are removed, inf for never (default: %(default)s)",
    )
    kinds = ", ".join((LOCAL, *PROVIDERS))
    add("--environment", default=defaults.environment, help=f"{kinds} or MODULE:CLASS (default: %(default)s)")
    add("--environment-option", action="append", default=[], metavar="KEY=VALUE", help="passed to the environment")
    add(
        "--unsafe-no-sandbox",
        action="store_true",
        help="--environment local without its sandbox: what the model writes runs as plain processes on this machine",
    )
    add("--agent-options", help="JSON object of agent options, under a record's own")
    add("--token-file", help="file with the token every call must carry; default: AGENT_SERVER_TOKEN_FILE")
    add("--ready-file", help="written as JSON (host, port, pid) once the server listens")
    add("--parent-pid", type=int, help="the server ends when this process does")
    return parser


def _agent_options(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        options: object = json.loads(text)
    except ValueError as error:
        raise BadSetting(f"--agent-options is not JSON: {error}") from error
    if not isinstance(options, dict):
        raise BadSetting(f"--agent-options must be a JSON object, not {text:.80}")
    named = cast("dict[str, Any]", options)
    try:
        check_default_options(named)
    except BadAgentOptions as error:
        raise BadSetting(f"--agent-options: {error}") from error
    return named


def _secret_file(source: str, path: str | None) -> Secret | None:
    return SecretFile(source, path) if path else None
