"""The HTTP routes of the agent server."""

import asyncio
import math
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import JSONResponse

from harbor_service import __version__
from harbor_service.access import Access
from harbor_service.environments import sandbox_lifetime
from harbor_service.probe import ProbeRequest, ProbeResult, is_local_caller, probe
from harbor_service.run_request import FlushRequest, RunRequest, TasksRequest
from harbor_service.settings import Settings
from harbor_service.shell_options import BadAgentOptions
from harbor_service.trial_desk import DeskClosed, Entry, TrialDesk
from harbor_service.trial_runner import TrialRunner


class Routes:
    """POST /run, POST /flush, POST /tasks, POST /probe, GET /health."""

    def __init__(self, settings: Settings, runner: TrialRunner, desk: TrialDesk) -> None:
        self._settings = settings
        self._runner = runner
        self._desk = desk

    async def run(self, body: RunRequest, connection: Request) -> dict[str, Any]:
        """Run the trial of one trajectory; closing the connection ends it."""
        folder = self._runner.tasks.find(body.instance_id)
        if folder is None:
            raise HTTPException(404, f"unknown instance_id {body.instance_id!r:.120}")
        try:
            agent = self._runner.agent_of(body)
        except BadAgentOptions as error:
            raise HTTPException(422, str(error)) from error
        try:
            entry = self._desk.start(
                body.instance_id,
                body.agent_name,
                body.owner,
                lambda _: self._runner.run(folder, body, agent),
            )
        except DeskClosed as error:
            raise HTTPException(503, str(error)) from error
        watch = asyncio.create_task(self._end_on_hang_up(entry, connection))
        try:
            outcome = await self._desk.outcome_of(entry)
        finally:
            watch.cancel()
        metrics = {
            **outcome.agent_metrics,
            "queue_seconds": round(entry.queue_seconds, 4),
            "trial_seconds": round(entry.trial_seconds, 4),
        }
        return {
            "reward": outcome.reward,
            "exit_status": outcome.exit_status,
            "eval_report": outcome.eval_report,
            "agent_metrics": metrics,
        }

    async def flush(self, body: FlushRequest) -> dict[str, int]:
        """End all trials of one session server instance."""
        return {"cancelled": await self._desk.cancel_owned_by(str(body.session_server_instance_id))}

    async def tasks(self, body: TasksRequest) -> dict[str, Any]:
        """Which of the ids have no folder here, and which folders Harbor cannot load."""
        missing, broken = await asyncio.to_thread(self._runner.tasks.check, body.instance_ids)
        return {"missing": missing, "broken": broken}

    async def probe(self, body: ProbeRequest, connection: Request) -> ProbeResult:
        """Whether this machine reaches a port of the caller's; without a token for callers on this machine only."""
        if self._settings.token is None and not is_local_caller(connection):
            raise HTTPException(403, "without a token /probe answers callers on this machine only; give --token-file")
        return await probe(body)

    async def health(self) -> dict[str, Any]:
        """State and limits; times in seconds, `trial_timeout` is that of the longest task, null if it has no end."""
        tasks = await asyncio.to_thread(self._runner.tasks.summary)
        settings = self._settings
        agent = settings.agent_timeout * tasks.steps
        whole = tasks.build_seconds + settings.setup_timeout + agent + tasks.verifier_seconds
        return {
            "status": "ok",
            "version": __version__,
            "max_concurrent": self._desk.max_concurrent,
            "running": len(self._desk.running),
            "queued": len(self._desk.queued),
            "agent_timeout": settings.agent_timeout,
            # TOML has infinity, JSON has not.
            "trial_timeout": whole if math.isfinite(whole) else None,
            "tasks": tasks.count,
            "environment": settings.environment,
            **sandbox_lifetime(settings.environment, settings.environment_options),
        }

    async def _end_on_hang_up(self, entry: Entry, connection: Request) -> None:
        while (await connection.receive())["type"] != "http.disconnect":
            pass
        self._desk.cancel(entry, "the caller hung up")


def make_app(settings: Settings, runner: TrialRunner, desk: TrialDesk) -> Any:
    """The ASGI application."""
    routes = Routes(settings, runner, desk)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_api_route("/run", routes.run, methods=["POST"], response_model=None)
    app.add_api_route("/flush", routes.flush, methods=["POST"], response_model=None)
    app.add_api_route("/tasks", routes.tasks, methods=["POST"], response_model=None)
    app.add_api_route("/probe", routes.probe, methods=["POST"], response_model=None)
    app.add_api_route("/health", routes.health, methods=["GET"], response_model=None)
    app.add_exception_handler(RequestValidationError, _malformed)
    return Access(app, settings.token, settings.admin_secret)


async def _malformed(request: Request, error: Exception) -> JSONResponse:
    """One sentence for each problem, without the caller's data, which may hold anything."""
    del request
    if not isinstance(error, RequestValidationError):
        raise error
    problems = [f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors()]
    return JSONResponse({"detail": "; ".join(problems)}, 422)
