"""Weights & Biases, for those who ask for it: imported only then, and never a reason for a run to end.

The key comes from WANDB_API_KEY or netrc, read by the wandb package itself; it is in no argument and no configuration.
With WANDB_MODE=offline no key and no network are needed; `wandb sync` sends the files later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from wandb import Run

STEP_METRIC = "rollout/step"

_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_.-]")


class WandbSettings(Protocol):
    """Where the run appears; local_engine.config.WandbConfig is one."""

    @property
    def project(self) -> str: ...
    @property
    def team(self) -> str | None: ...
    @property
    def run_name(self) -> str | None: ...
    @property
    def group(self) -> str | None: ...


class WandbLog:
    """Logs one run, or nothing when `settings` is None.

    run_id: names the W&B run, so that a resumed run goes on in the same one. folder: where wandb puts its files.
    run_config: what is shown as the run's configuration; no secrets. warn: called once, with one sentence, when W&B
    fails; after that nothing more is sent.
    """

    def __init__(
        self,
        settings: WandbSettings | None,
        *,
        run_id: str,
        folder: Path,
        run_config: Mapping[str, Any],
        warn: Callable[[str], None],
    ) -> None:
        self._warn = warn
        self._run: Run | None = None
        if settings is not None:
            self._start(settings, run_id, folder, run_config)

    @property
    def active(self) -> bool:
        return self._run is not None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """`step` is the rollout's 0-based id; metrics by slash-separated name."""
        if self._run is None:
            return
        try:
            # No `step=`: W&B drops steps that do not grow, and a run resumed from a checkpoint repeats some.
            self._run.log({STEP_METRIC: step, **metrics})
        except _wandb_failures() as error:
            self._give_up(error)

    def finish(self, exit_code: int = 0) -> None:
        """Send what is left and close the run; a failed run is marked so by its exit code."""
        if self._run is None:
            return
        try:
            self._run.finish(exit_code=exit_code)
        except _wandb_failures() as error:
            self._give_up(error)
        self._run = None

    def _start(self, settings: WandbSettings, run_id: str, folder: Path, run_config: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError as error:
            self._warn(f"nothing is logged to W&B: {error}; install the dependency group `report` or leave W&B out")
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # The live display owns the terminal, and what it shows is no log.
            options = wandb.Settings(console="off", silent=True)
            effective = wandb.setup(options).settings
            if effective.mode in ("online", "shared") and not has_key(effective.base_url):
                self._warn(
                    "nothing is logged to W&B: no API key for it was found; set WANDB_API_KEY, run `wandb login`, or "
                    "set WANDB_MODE=offline"
                )
                return
            self._run = wandb.init(
                project=settings.project,
                entity=settings.team,
                name=settings.run_name,
                group=settings.group,
                id=_NOT_IN_AN_ID.sub("-", run_id)[:64],
                resume="allow",
                dir=folder,
                config=dict(run_config),
                settings=options,
            )
            self._run.define_metric(STEP_METRIC)
            self._run.define_metric("*", step_metric=STEP_METRIC)
        except _wandb_failures() as error:
            self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        self._run = None
        reason = " ".join(str(error).split())
        self._warn(f"W&B logging has stopped, the run goes on: {type(error).__name__}: {reason}")


def has_key(base_url: str) -> bool:
    """Whether W&B finds a key for its server, without a prompt: on a terminal it would stop and ask."""
    from wandb.sdk.lib import wbauth

    return wbauth.authenticate_session(host=base_url, source="agentic-rl-launchers", prompt=False) is not None


def _wandb_failures() -> tuple[type[BaseException], ...]:
    """What wandb raises when its service, the network, the disk or the account fails; they share no base."""
    import wandb.errors
    from wandb.sdk.lib.asyncio_manager import AlreadyJoinedError, RunCancelledError
    from wandb.sdk.lib.service.service_connection import WandbAttachFailedError  # pyright: ignore[reportMissingTypeStubs]
    from wandb.sdk.lib.service.service_token import WandbServiceConnectionError  # pyright: ignore[reportMissingTypeStubs]
    from wandb.sdk.mailbox.mailbox import MailboxClosedError
    from wandb.sdk.mailbox.mailbox_handle import HandleAbandonedError, ServerResponseError

    return (
        wandb.errors.Error,
        WandbServiceConnectionError,
        WandbAttachFailedError,
        MailboxClosedError,
        HandleAbandonedError,
        ServerResponseError,
        AlreadyJoinedError,
        RunCancelledError,
        OSError,
    )
