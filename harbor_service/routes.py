"""The HTTP routes of the agent server."""

import asyncio
import json
import math
from typing import Any, Final

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.responses import JSONResponse, Response

from harbor_service import __version__
from harbor_service.access import Access
from harbor_service.agent_options import BadAgentOptions
from harbor_service.probe import ProbeRequest, ProbeResult, is_local_caller, probe
from harbor_service.run_request import FlushRequest, RunRequest, TasksRequest
from harbor_service.sandbox_lifetime import fixed_lifetime
from harbor_service.settings import Settings
from harbor_service.trial_desk import DeskClosed, Entry, QueueFull, TrialDesk
from harbor_service.trial_metrics import CONTENT_TYPE, TrialMetrics
from harbor_service.trial_runner import TrialRunner

_RETRY_SECONDS: Final = {429: "5", 503: "10"}


class AsciiJSON(JSONResponse):
    """JSON with escapes: half a surrogate pair, which a request or a task can hold, has no UTF-8."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


class NotStarted(Exception):
    """The call of /run started no trial and may be repeated: 429 while the queue is full, 503 while we end."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Routes:
    """POST /run, POST /flush, POST /tasks, POST /probe, GET /health, GET /metrics."""

    def __init__(self, settings: Settings, runner: TrialRunner, desk: TrialDesk, metrics: TrialMetrics) -> None:
        self._metrics = metrics
        self._settings = settings
        self._runner = runner
        self._desk = desk

    async def run(self, body: RunRequest, connection: Request) -> dict[str, Any]:
        """Run the trial of one trajectory; closing the connection ends it."""
        folder = self._runner.tasks.find(body.instance_id)
        if folder is None:
            raise HTTPException(404, f"unknown instance_id {body.instance_id!r:.120}")
        try:
            agent = await self._runner.agent_of(body)
        except BadAgentOptions as error:
            raise HTTPException(422, str(error)) from error
        try:
            entry = self._desk.start(
                body.instance_id,
                body.agent_name,
                body.owner,
                lambda entry: self._runner.run(folder, body, agent, entry.trial_name),
                self._runner.folders.new_name(body.instance_id),
            )
        except QueueFull as error:
            self._metrics.refused("queue_full")
            raise NotStarted(429, str(error)) from error
        except DeskClosed as error:
            self._metrics.refused("closing")
            raise NotStarted(503, str(error)) from error
        watch = asyncio.create_task(self._end_on_hang_up(entry, connection))
        try:
            outcome = await self._desk.outcome_of(entry)
        finally:
            watch.cancel()
        if entry.started_at is None and self._desk.closed:
            raise NotStarted(503, str(outcome.eval_report.get("reason")))
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
        """Which of the ids have no folder here, which folders Harbor cannot load, which agents cannot run here."""
        missing, broken = await asyncio.to_thread(self._runner.tasks.check, body.instance_ids)
        answer: dict[str, Any] = {"missing": missing, "broken": broken}
        if body.agent_names is None:
            return answer
        return {**answer, "refused_agents": await self._runner.refused_agents(body.agent_names)}

    async def probe(self, body: ProbeRequest, connection: Request) -> ProbeResult:
        """Whether this machine reaches a port of the caller's; without a token for callers on this machine only."""
        if self._settings.token is None and not is_local_caller(connection):
            raise HTTPException(403, "without a token /probe answers callers on this machine only; give --token-file")
        return await probe(body)

    async def health(self) -> dict[str, Any]:
        """State and limits; times in seconds, `trial_timeout` is that of the longest task, null if it has no end."""
        tasks = await asyncio.to_thread(self._runner.tasks.summary)
        settings = self._settings
        whole = self._runner.longest_trial(tasks)
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
            **fixed_lifetime(settings.environment, settings.environment_options),
        }

    async def metrics(self) -> Response:
        """Prometheus' text."""
        return Response(self._metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def _end_on_hang_up(self, entry: Entry, connection: Request) -> None:
        while (await connection.receive())["type"] != "http.disconnect":
            pass
        self._desk.cancel(entry, "the caller hung up")


def make_app(settings: Settings, runner: TrialRunner, desk: TrialDesk, metrics: TrialMetrics) -> Any:
    """The ASGI application."""
    routes = Routes(settings, runner, desk, metrics)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, default_response_class=AsciiJSON)
    app.add_api_route("/run", routes.run, methods=["POST"], response_model=None)
    app.add_api_route("/flush", routes.flush, methods=["POST"], response_model=None)
    app.add_api_route("/tasks", routes.tasks, methods=["POST"], response_model=None)
    app.add_api_route("/probe", routes.probe, methods=["POST"], response_model=None)
    app.add_api_route("/health", routes.health, methods=["GET"], response_model=None)
    app.add_api_route("/metrics", routes.metrics, methods=["GET"], response_model=None)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(AnyHTTPException, _refused)
    app.add_exception_handler(NotStarted, _not_started)
    return Access(app, settings.token, settings.admin_secret)


async def _malformed(request: Request, error: Exception) -> JSONResponse:
    """One sentence for each problem, without the caller's data, which may hold anything."""
    del request
    if not isinstance(error, RequestValidationError):
        raise error
    problems = [f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors()]
    return AsciiJSON({"detail": "; ".join(problems)}, 422)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    del request
    if not isinstance(error, AnyHTTPException):
        raise error
    # FastAPI's own 400 is a body that it cannot read, nested too deep for one.
    return AsciiJSON({"detail": error.detail}, 422 if error.status_code == 400 else error.status_code)


async def _not_started(request: Request, error: Exception) -> JSONResponse:
    del request
    if not isinstance(error, NotStarted):
        raise error
    # `started` tells it from a gateway's 503, behind which a trial may be running.
    return AsciiJSON(
        {"detail": str(error), "started": False}, error.status, {"Retry-After": _RETRY_SECONDS[error.status]}
    )
