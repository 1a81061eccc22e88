"""Pages for a person: running, queued and ended trials, and what each of them did."""

import asyncio
from collections import Counter
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Final

from fastapi import FastAPI
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import HTMLResponse

from harbor_service.trial_desk import Entry, TrialDesk
from harbor_service.trial_record import TrialRecord, read_record

HOST: Final = "127.0.0.1"
_STYLE: Final = (
    "body{font:14px system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.25em .8em;border-bottom:1px solid #ddd}"
    "th.n,td.n{text-align:right;font-variant-numeric:tabular-nums}a{color:#05c}h2{margin-top:1.6em}"
    "pre{background:#f6f6f6;padding:.8em;overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere;margin:.2em 0}"
    ".assistant pre{background:#eaf3ff}.command pre{background:#fff6e5}"
    "h3{font-size:1em;margin:1em 0 0}.muted{color:#777}"
)
_HEADERS: Final = {
    # Nothing is loaded, run or sent from these pages, whatever gets into them.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_REFRESH_SECONDS: Final = 3
_NUMBERS: Final = frozenset({"seconds", "reward", "trials"})
_HIDDEN: Final = "[hidden]"


def make_dashboard(desk: TrialDesk, trials_dir: Path, secrets: Callable[[], list[str]]) -> TrustedHostMiddleware:
    """The dashboard's ASGI application: pages without actions; a text of `secrets()` is never shown."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    hide = _hider(secrets)

    async def overview() -> HTMLResponse:
        return HTMLResponse(render(desk, hide), headers=_HEADERS)

    async def trial(number: int) -> HTMLResponse:
        entry = desk.find(number)
        if entry is None:
            gone = _page("Unknown trial", "<p>No such trial, or it ended long ago.</p>", refresh=False)
            return HTMLResponse(gone, 404, headers=_HEADERS)
        record = await asyncio.to_thread(read_record, trials_dir / entry.trial_name)
        return HTMLResponse(render_trial(entry, record, hide), headers=_HEADERS)

    app.add_api_route("/", overview, methods=["GET"], response_model=None)
    app.add_api_route("/trials/{number}", trial, methods=["GET"], response_model=None)
    # A page of the internet that has its own name point to this address does not get in.
    return TrustedHostMiddleware(app, allowed_hosts=[HOST, "localhost"])


def render(desk: TrialDesk, hide: Callable[[str], str] = str) -> str:
    """The overview as HTML; everything that comes from a request or a trial is escaped."""
    running, queued, results = desk.running, desk.queued, list(reversed(desk.results))
    statuses = Counter(_status(entry) for entry in results)
    head = f"{len(running)} of {desk.max_concurrent} running, {len(queued)} queued, last {len(results)} results"
    tables = (
        (
            "Running",
            ("trial", "task", "agent", "seconds"),
            [_named(e, hide, f"{e.trial_seconds:.1f}") for e in running],
        ),
        ("Queued", ("trial", "task", "agent", "seconds"), [_named(e, hide, f"{e.queue_seconds:.1f}") for e in queued]),
        ("Exit statuses", ("exit status", "trials"), [(_text(hide(s)), str(n)) for s, n in statuses.most_common()]),
        (
            "Results",
            ("trial", "task", "agent", "exit status", "reward", "seconds"),
            [_named(e, hide, _text(hide(_status(e))), _reward(e), f"{e.trial_seconds:.1f}") for e in results],
        ),
    )
    return _page("Agent server", f"<p>{head}</p>" + "".join(_table(*table) for table in tables), refresh=True)


def render_trial(entry: Entry, record: TrialRecord, hide: Callable[[str], str] = str) -> str:
    """One trial as HTML: its messages, commands with their output, the verifier's output."""
    facts = [
        ("agent", _text(hide(entry.agent_name))),
        ("state", _state(entry)),
        ("exit status", _text(hide(_status(entry)))),
        ("reward", _reward(entry)),
        ("seconds", f"{entry.trial_seconds:.1f} after {entry.queue_seconds:.1f} in the queue"),
        ("folder", _text(entry.trial_name)),
    ]
    body = '<p><a href="/">All trials</a></p><table id="facts">'
    body += "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in facts) + "</table>"
    reason = entry.outcome.eval_report.get("reason") if entry.outcome is not None else None
    for title, name, text in (("Reason", "reason", str(reason or "")), ("Error", "error", record.error)):
        body += _block(title, name, hide(text)) if text else ""
    body += "<h2>Messages</h2>"
    body += "".join(_message(message.role, hide(message.text)) for message in record.messages)
    body += "" if record.messages else '<p class="muted">none yet, or none kept</p>'
    body += _block("Verifier output", "verifier", hide(record.verifier_output))
    return _page(f"Trial {entry.number}: {hide(entry.instance_id)}", body, refresh=entry.finished_at is None)


def _page(title: str, body: str, *, refresh: bool) -> str:
    again = f'<meta http-equiv="refresh" content="{_REFRESH_SECONDS}">' if refresh else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{again}<title>{_text(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{_text(title)}</h1>{body}</body></html>"
    )


def _named(entry: Entry, hide: Callable[[str], str], *rest: str) -> tuple[str, ...]:
    link = f'<a href="/trials/{entry.number}">{entry.number}</a>'
    return (link, _text(hide(entry.instance_id)), _text(hide(entry.agent_name)), *rest)


def _state(entry: Entry) -> str:
    if entry.finished_at is not None:
        return "ended"
    return "queued" if entry.started_at is None else "running"


def _status(entry: Entry) -> str:
    return "-" if entry.outcome is None else entry.outcome.exit_status


def _reward(entry: Entry) -> str:
    return "-" if entry.outcome is None or entry.outcome.reward is None else f"{entry.outcome.reward:g}"


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Cells are HTML; a table without rows is left out."""
    if not rows:
        return ""
    marks = [' class="n"' if column in _NUMBERS else "" for column in columns]
    head = "".join(f"<th{mark}>{column}</th>" for mark, column in zip(marks, columns, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{mark}>{cell}</td>" for mark, cell in zip(marks, row, strict=True)) + "</tr>"
        for row in rows
    )
    name = title.lower().replace(" ", "-")
    return f'<h2>{title}</h2><table id="{name}"><tr>{head}</tr>{body}</table>'


def _message(role: str, text: str) -> str:
    known = role if role in ("system", "user", "assistant", "command", "tool") else "other"
    return f'<div class="message {known}"><h3>{_text(role)}</h3><pre>{_text(text)}</pre></div>'


def _block(title: str, name: str, text: str) -> str:
    shown = f"<pre>{_text(text)}</pre>" if text else '<p class="muted">none</p>'
    return f'<div id="{name}"><h2>{title}</h2>{shown}</div>'


def _text(text: str) -> str:
    # Half a surrogate pair, which a JSON request can carry, has no UTF-8.
    return escape(text.encode("utf-8", "replace").decode())


def _hider(secrets: Callable[[], list[str]]) -> Callable[[str], str]:
    def hide(text: str) -> str:
        for secret in sorted(secrets(), key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
        return text

    return hide
