"""A page of running, queued and ended trials."""

from html import escape
from typing import Any

from fastapi import FastAPI
from starlette.responses import HTMLResponse

from harbor_service.trial_desk import Entry, TrialDesk

_STYLE = (
    "body{font:14px system-ui,sans-serif;margin:2em;max-width:70em}table{border-collapse:collapse;width:100%}"
    "th,td{text-align:left;padding:.2em .8em;border-bottom:1px solid #ddd}td.n{text-align:right}"
)
_REFRESH_SECONDS = 3


def make_dashboard(desk: TrialDesk) -> FastAPI:
    """The dashboard's ASGI application: one page, no actions."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    async def page() -> HTMLResponse:
        return HTMLResponse(
            render(desk), headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
        )

    app.add_api_route("/", page, methods=["GET"], response_model=None)
    return app


def render(desk: TrialDesk) -> str:
    """The page as HTML; everything that comes from a request or a trial is escaped."""
    running, queued, results = desk.running, desk.queued, list(reversed(desk.results))
    head = f"{len(running)} of {desk.max_concurrent} running, {len(queued)} queued, last {len(results)} results"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="{_REFRESH_SECONDS}">'
        f"<title>Agent server</title><style>{_STYLE}</style><h1>Agent server</h1><p>{head}</p>"
        + _table("Running", ("task", "agent", "seconds"), [_named(e, f"{e.trial_seconds:.1f}") for e in running])
        + _table("Queued", ("task", "agent", "seconds"), [_named(e, f"{e.queue_seconds:.1f}") for e in queued])
        + _table("Results", ("task", "agent", "exit status", "reward", "seconds"), [_result(e) for e in results])
        + "</html>"
    )


def _named(entry: Entry, *rest: str) -> tuple[str, ...]:
    return (entry.instance_id, entry.agent_name, *rest)


def _result(entry: Entry) -> tuple[str, ...]:
    outcome: Any = entry.outcome
    reward = "-" if outcome is None or outcome.reward is None else f"{outcome.reward:g}"
    status = "-" if outcome is None else outcome.exit_status
    return _named(entry, status, reward, f"{entry.trial_seconds:.1f}")


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{column}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<h2>{title}</h2><table><tr>{head}</tr>{body}</table>"
