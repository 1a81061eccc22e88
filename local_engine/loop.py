"""The local engine's training run, from a resolved configuration to an exit code.

Left out against Miles: several devices, several nodes.
"""

import asyncio
import os
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager

from local_engine.agent_server_process import AgentServerFailed, AgentServerProcess
from local_engine.asynchronous_run import AsynchronousRun
from local_engine.batcher import SamplingFailed
from local_engine.config import LocalRunConfig
from local_engine.data import prepare_data
from local_engine.engine import Engine
from local_engine.machine import MachineError, choose_machine
from local_engine.manifest import CheckpointError
from local_engine.plan_rows import plan_rows, shown_config
from local_engine.pretrained import CheckpointNotUsable
from local_engine.progress import RunProgress
from local_engine.run_files import RunFiles
from local_engine.run_state import load_start, restore
from local_engine.synchronous_run import SynchronousRun
from local_engine.training_run import DONE, FAILED, RunParts
from local_engine.wandb_log import WandbLog
from miles_data.findings import DataError
from tasks.folder import TaskFolderError
from trajectory.discards import TooManyDiscards

CANNOT_WORK = 2

__all__ = ["CANNOT_WORK", "DONE", "FAILED", "run"]


def run(config: LocalRunConfig) -> int:
    """Run to the end; the exit code says how it ended. What is expected to go wrong is printed, not raised."""
    with RunProgress(config.num_rollout) as progress, _environment(config):
        try:
            return asyncio.run(_run(config, progress))
        except (MachineError, CheckpointNotUsable, CheckpointError, DataError, TaskFolderError) as error:
            progress.error(str(error))
            return CANNOT_WORK
        except (TooManyDiscards, AgentServerFailed, SamplingFailed, FloatingPointError) as error:
            progress.error(str(error))
            return FAILED


async def _run(config: LocalRunConfig, progress: RunProgress) -> int:
    # First: a resume that is refused leaves the tasks and the data of its run as they are.
    start = load_start(config)
    progress.phase("preparing tasks and data")
    data = prepare_data(config)
    machine = choose_machine(config)
    progress.phase("loading the model")
    engine = Engine(config, machine)
    state, stream = restore(config, engine, data, start)
    del start  # its optimizer state is as large as the trainer's own
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(engine)
        if state.done >= config.num_rollout:
            # Started all the same where the run before this one could not write its model.
            rows, written = RunFiles(config.save_dir, config.traces_dir, progress.warning).model_rows(
                engine.policy, engine.tokenizer
            )
            progress.summary(rows)
            return DONE if written else FAILED
        if config.agent_server_url is None and data.tasks_dir is not None:
            progress.phase("starting the agent server")
            server = await stack.enter_async_context(
                AgentServerProcess(
                    tasks_dir=data.tasks_dir,
                    work_dir=config.save_dir / "agent_server",
                    max_concurrent=config.max_concurrent,
                    agent_timeout=config.agent_timeout,
                    agent_options={"max_turns": config.max_turns, **config.agent_options},
                    warn=progress.warning,
                )
            )
            os.environ["AGENT_SERVER_URL"] = server.url
            os.environ["AGENT_SERVER_TOKEN_FILE"] = str(server.token_file)
        progress.plan(plan_rows(config, data, machine, engine.policy, state))
        log = WandbLog(
            config.wandb,
            run_id=config.run_id,
            folder=config.save_dir,
            run_config=shown_config(config),
            warn=progress.warning,
        )
        code = FAILED
        try:
            parts = RunParts(config, data, engine, state, stream, progress, log)
            kind = SynchronousRun if config.asynchrony is None else AsynchronousRun
            code = await kind(parts).run()
        finally:
            log.finish(code)
        return code


@contextmanager
def _environment(config: LocalRunConfig) -> Generator[None]:
    """The agent function reads its settings from the environment, as in a Miles worker; it is put back afterwards."""
    changed = {"AGENT_MODEL_NAME": config.agent_model_name, **config.extra_env}
    if config.agent_server_url is not None:
        changed["AGENT_SERVER_URL"] = config.agent_server_url
    # Settings of a cluster that a shell may still hold: the session server is on loopback here, and a lock step that
    # may not open all its connections never fills.
    foreign = {"MILES_ROUTER_EXTERNAL_HOST"}
    if config.deterministic:
        foreign.add("AGENT_SERVER_MAX_CONNECTIONS")
    touched = {*changed, *foreign, "AGENT_SERVER_URL", "AGENT_SERVER_TOKEN_FILE"}
    before = {name: os.environ.get(name) for name in touched}
    for name in foreign - changed.keys():
        os.environ.pop(name, None)
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
