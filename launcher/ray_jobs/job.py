"""One Ray job: submitted, followed to its own verdict, stopped."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from launcher.errors import ExitCode, LauncherError, PreflightError
from launcher.output import say, write
from launcher.ray_jobs.client import Connection, JobState, RayRefused, RayUnreachable, connect
from launcher.ray_jobs.cluster import Cluster
from launcher.ray_jobs.follow import PATIENCE, JobLost, LogFollower
from launcher.ray_jobs.terminated import Terminated, terminated_by_signal
from launcher.secrets import has_credentials, is_secret_name

_SUBMIT_SECONDS = 60.0
_STOP_SECONDS = 30.0
_STOP_AFTER_SIGTERM_SECONDS = 20.0  # SLURM kills 30 s after its SIGTERM
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class JobSpec:
    """`entrypoint` is the program and its arguments, one by one; `environment` reaches the driver and every worker.

    Ray replaces `$NAME` and `${NAME}` in a value by what the node has under that name; there is no way to write them.
    Raises ValueError for a secret: all of this can be read in Ray's dashboard.
    """

    submission_id: str
    entrypoint: tuple[str, ...]
    environment: Mapping[str, str]
    metadata: Mapping[str, str]

    def __post_init__(self) -> None:
        for name, value in (*self.environment.items(), *self.metadata.items()):
            if is_secret_name(name) or has_credentials(value):
                raise ValueError(f"{name} is a secret and must not be in the description of a job")
        if any(has_credentials(argument) for argument in self.entrypoint):
            raise ValueError("an argument of the entry point is a URL with a user or password")

    def command(self) -> str:
        """Ray takes one line for the shell; quoted here and nowhere else, so that each argument arrives unchanged."""
        return shlex.join(self.entrypoint)


def submit(cluster: Cluster, spec: JobSpec) -> None:
    """Returns when Ray has taken the job, which need not run yet. Raises PreflightError."""
    connection = connect(cluster.address)
    deadline = time.monotonic() + _SUBMIT_SECONDS
    asked = False
    # The part of a young head that starts jobs can be late, and an answer can get lost on its way back.
    while not (asked and _is_known(connection, spec.submission_id)):
        try:
            asked = True
            connection.submit(spec.submission_id, spec.command(), spec.environment, spec.metadata)
            return
        except (RayRefused, RayUnreachable) as error:
            late = isinstance(error, RayUnreachable) or "No available agent" in str(error)
            if not late or time.monotonic() > deadline:
                raise PreflightError(
                    f"Ray at {cluster.address} did not take the job {spec.submission_id}: {error}; see what it holds "
                    f"with `{cluster.ray} job list --address {cluster.address}`, and start again"
                ) from None
        time.sleep(1)


def follow(cluster: Cluster, submission_id: str, out: TextIO, *, patience: float = PATIENCE) -> ExitCode:
    """The log goes to `out`, the verdict in one sentence to standard error. `patience` in seconds: see LogFollower."""
    return _verdict(LogFollower(cluster, connect(cluster.address), submission_id, out, patience))


def stop(cluster: Cluster, submission_id: str, *, timeout: float = _STOP_SECONDS) -> None:
    """Asks Ray to end the job and waits until it has ended; one that has ended already is fine.

    Ray sends SIGTERM, and SIGKILL after 3 s. Raises LauncherError when it has not ended after `timeout` seconds.
    """
    connection = connect(cluster.address)
    deadline = time.monotonic() + timeout
    try:
        connection.stop(submission_id)
        while not connection.state(submission_id).ended:
            if time.monotonic() > deadline:
                raise LauncherError(
                    f"the job {submission_id} has not ended {timeout:g} s after it was told to; {_by_hand(cluster)}"
                )
            time.sleep(_POLL_SECONDS)
    except (RayRefused, RayUnreachable) as error:
        raise LauncherError(f"the job {submission_id} cannot be stopped: {error}; {_by_hand(cluster)}") from None


def run_job(cluster: Cluster, spec: JobSpec, *, wait: bool, out: TextIO, patience: float = PATIENCE) -> ExitCode:
    """Submits; then follows to the verdict, or with `wait` unset says how to follow and stop.

    The first Ctrl-C stops the job and waits for its end, a second one gives the waiting up. SIGTERM does the same, and
    waits 20 s at most.
    """
    follower = LogFollower(cluster, connect(cluster.address), spec.submission_id, out, patience)
    with terminated_by_signal():
        try:
            submit(cluster, spec)
            if wait:
                return _verdict(follower)
        except KeyboardInterrupt as interrupt:
            return _stop_and_wait(follower, interrupt)
    text = _how_to(follower)
    if trouble := write(out, f"{text}\n"):
        say(f"the output was closed ({trouble})\n{text}")
    return ExitCode.SUCCEEDED


def job_output(
    cluster: Cluster, spec: JobSpec, *, timeout: float, interrupted: threading.Event | None = None
) -> tuple[bool, str]:
    """Whether the job SUCCEEDED within `timeout` seconds, and its whole log; it is stopped when it has not ended.

    `interrupted`, set by another thread, ends the waiting: the job is told to stop and nobody waits for its end. The
    first line of the log is Ray's, which repeats the entry point. Raises LauncherError when Ray is not there.
    """
    submit(cluster, spec)
    connection = connect(cluster.address)
    deadline = time.monotonic() + timeout
    interrupted = interrupted or threading.Event()
    try:
        while not (state := connection.state(spec.submission_id)).ended:
            if time.monotonic() > deadline:
                stop(cluster, spec.submission_id)
                return False, f"{connection.log(spec.submission_id)}\nno end after {timeout:g} s"
            if interrupted.wait(_POLL_SECONDS):
                connection.stop(spec.submission_id)
                return False, "interrupted"
        log = connection.log(spec.submission_id)
    except (RayRefused, RayUnreachable) as error:
        raise PreflightError(f"Ray at {cluster.address} does not answer for a job: {error}") from None
    if state.status == "FAILED" and not log:
        return False, state.message
    return state.status == "SUCCEEDED", log


def _is_known(connection: Connection, submission_id: str) -> bool:
    try:
        connection.state(submission_id)
    except (RayRefused, RayUnreachable):
        return False
    return True


def _verdict(follower: LogFollower) -> ExitCode:
    try:
        state = follower.until_end()
    except JobLost as error:
        say(f"the job {follower.submission_id} is lost: {error}")
        return ExitCode.FAILED
    if state.status == "SUCCEEDED":
        return ExitCode.SUCCEEDED
    say(f"the job {follower.submission_id} {_why(state)}")
    return ExitCode.FAILED


def _why(state: JobState) -> str:
    if state.status == "STOPPED":
        return "was stopped by somebody else"
    # Ray appends the end of the log, which has been printed.
    first_line = state.message.split(", last available logs", 1)[0].strip().partition("\n")[0]
    return f"failed: {first_line[:300] or 'Ray gives no reason'}"


def _stop_and_wait(follower: LogFollower, interrupt: KeyboardInterrupt) -> ExitCode:
    cluster, submission_id = follower.cluster, follower.submission_id
    terminated = isinstance(interrupt, Terminated)
    give_up = f"its end is waited for {_STOP_AFTER_SIGTERM_SECONDS:g} s" if terminated else "a second Ctrl-C gives up"
    say(f"stopping the job {submission_id}; {give_up}")
    try:
        follower.connection.stop(submission_id)
        state = follower.until_end(_STOP_AFTER_SIGTERM_SECONDS if terminated else None)
        say(f"the job {submission_id} has ended: {state.status}")
    except (RayRefused, RayUnreachable, JobLost) as error:
        say(f"the job {submission_id} cannot be stopped: {error}; {_by_hand(cluster)}")
    except (KeyboardInterrupt, TimeoutError):
        say(f"gave up waiting; `{cluster.ray} job stop {submission_id} --address {cluster.address}` stops the job")
    return ExitCode.STOPPED


def _how_to(follower: LogFollower) -> str:
    cluster = follower.cluster
    lines = [f"submitted as {follower.submission_id}", follower.handles()]
    if cluster.owned:
        lines.append(f"end Ray:    kill {cluster.pid}")
    return "\n".join(lines)


def _by_hand(cluster: Cluster) -> str:
    return f"see `{cluster.ray} job list --address {cluster.address}`"
