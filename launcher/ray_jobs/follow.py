"""Follows one job: its log as it comes, through every dropped connection, until its own verdict."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TextIO

from launcher.output import say, write
from launcher.ray_jobs.client import Connection, JobState, RayRefused, RayUnreachable
from launcher.ray_jobs.cluster import Cluster

PATIENCE = 60.0  # seconds without any answer before a cluster counts as gone
# Asking for the whole log shows a line seconds earlier than Ray's stream, and costs too much for a long one.
_SHORT_LOG = 64 * 1024  # characters
_FIRST_DELAY, _LONGEST_DELAY, _LONGEST_DELAY_OF_LONG_LOG = 0.2, 1.0, 8.0  # seconds between two questions
_ATTEMPTS = 3
_SILENT_PIECES = 10  # of a second each


class JobLost(Exception):
    """The job's verdict will never be known; the text says why."""


@dataclass
class LogFollower:
    """Each character of the log is written to `out` once, whatever number of calls and connections it takes.

    Once `out` takes no more, the job is followed in silence: its exit code is still wanted, and an own head still kept.
    """

    cluster: Cluster
    connection: Connection
    submission_id: str
    out: TextIO
    patience: float = PATIENCE
    _written: int = field(default=0, init=False)
    _mute: bool = field(default=False, init=False)
    _broken_since: float | None = field(default=None, init=False)

    def until_end(self, seconds: float | None = None) -> JobState:
        """Raises JobLost, TimeoutError after `seconds`, and KeyboardInterrupt, after which it may be called again."""
        return asyncio.run(asyncio.wait_for(self._until_end(), seconds))

    async def _until_end(self) -> JobState:
        delay, broken_streams, unread = _FIRST_DELAY, 0, 0
        while True:
            written, trouble = self._written, None
            if written > _SHORT_LOG and broken_streams < _ATTEMPTS:
                trouble = await self._stream()
                state = await self._state()
                if state is not None and state.ended and trouble is None:
                    return state
                broken_streams = broken_streams + 1 if self._written == written else 0
            else:
                # The state first: a log that is read after the end is complete.
                state = await self._state()
                if state is not None:
                    unread = 0 if await self._write_rest() else unread + 1
                    if unread == _ATTEMPTS:
                        say("Ray cannot give the job's log; going on without it")
                    if state.ended and (unread == 0 or unread >= _ATTEMPTS):
                        return state
            self._note(trouble, answers=state is not None)
            longest = _LONGEST_DELAY if self._written <= _SHORT_LOG else _LONGEST_DELAY_OF_LONG_LOG
            delay = _FIRST_DELAY if self._written > written else min(delay * 2, longest)
            await self._pause(delay)

    async def _stream(self) -> str | None:
        """What broke the stream, or None when the server closed it."""
        seen = silent = 0
        ended = False
        try:
            async with aclosing(self.connection.tail(self.submission_id)) as pieces:
                async for piece in pieces:
                    self._recovered()
                    self._check_head()
                    self._write(piece[max(0, self._written - seen) :])
                    seen += len(piece)
                    silent = 0 if piece else silent + 1
                    if silent and silent % _SILENT_PIECES == 0:
                        # A stream over a node that vanished stays open for ever, though the job has ended.
                        state = await self._state()
                        if state is not None and state.ended and ended:
                            return "the log stream stayed open after the end of the job"
                        ended = state is not None and state.ended
        except RayUnreachable as error:
            return str(error)
        return None

    async def _state(self) -> JobState | None:
        """None while there is no answer. Raises JobLost when the cluster does not know the job."""
        self._check_head()
        try:
            return await asyncio.to_thread(self.connection.state, self.submission_id)
        except RayUnreachable:
            return None
        except RayRefused as error:
            if error.may_pass:
                return None
            if error.status == HTTPStatus.NOT_FOUND:
                raise JobLost("the cluster does not know the job any more: Ray was started anew since") from None
            raise JobLost(f"Ray answers {error}") from None

    async def _write_rest(self) -> bool:
        """Whether Ray gave the log; one byte in it that is not UTF-8 and it never does."""
        try:
            log = await asyncio.to_thread(self.connection.log, self.submission_id)
        except (RayUnreachable, RayRefused):
            return False
        self._write(log[self._written :])
        return True

    def _write(self, text: str) -> None:
        self._written += len(text)
        if not text or self._mute:
            return
        if trouble := write(self.out, text):
            self._mute = True
            say(
                f"the output was closed ({trouble}): the job goes on, and so does the waiting for its end\n"
                f"{self.handles()}"
            )

    def handles(self) -> str:
        """How to follow and to stop the job by hand, one a line."""
        ray, job = self.cluster.ray, f"{self.submission_id} --address {self.cluster.address}"
        return f"follow it:  {ray} job logs --follow {job}\nstop it:    {ray} job stop {job}"

    def _note(self, trouble: str | None, *, answers: bool) -> None:
        """Raises JobLost once nothing has answered for longer than `patience`."""
        if answers:
            self._recovered()
            return
        now = time.monotonic()
        if self._broken_since is None:
            self._broken_since = now
            reason = f" ({trouble})" if trouble else ""
            say(f"no connection to Ray at {self.cluster.address}{reason}; trying again")
        elif now - self._broken_since > self.patience:
            raise JobLost(
                f"Ray at {self.cluster.address} has not answered for {now - self._broken_since:.0f} s; if it comes "
                f"back, `{self.cluster.ray} job status {self.submission_id} --address {self.cluster.address}` knows "
                "the verdict"
            )

    def _recovered(self) -> None:
        if self._broken_since is not None:
            self._broken_since = None
            say(f"connected to Ray at {self.cluster.address} again")

    async def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._check_head()
            await asyncio.sleep(min(left, 0.5))

    def _check_head(self) -> None:
        if self.cluster.head_has_ended:
            raise JobLost("the Ray head that this launcher had started has ended, and the job with it")
