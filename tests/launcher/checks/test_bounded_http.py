from __future__ import annotations

import httpx
import pytest

from launcher.checks.bounded_http import MIB, call
from tests.launcher.checks.endless_server import HEAD, endless_server
from tests.launcher.checks.http_answers import http_answers


@pytest.mark.parametrize(
    ("first", "piece"), [(b"", b""), (b"", b"H"), (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"), (HEAD, b" "), (HEAD, b"")]
)
def test_a_server_that_answers_bit_by_bit_for_ever_is_left_in_time(first: bytes, piece: bytes) -> None:
    with endless_server(first, piece, 0.01) as address, pytest.raises(httpx.HTTPError):
        call("GET", f"http://{address}/health", seconds=0.3)


def test_an_answer_without_end_is_left_at_its_limit() -> None:
    with endless_server(HEAD, b"x" * 2**16, 0.0) as address, pytest.raises(httpx.DecodingError, match="1 MiB"):
        call("GET", f"http://{address}/health", seconds=60.0, most_bytes=MIB)


@pytest.mark.parametrize("host", ["a..b", "x" * 70])
def test_a_host_that_no_resolver_takes_is_an_http_error(host: str) -> None:
    with pytest.raises(httpx.HTTPError):
        call("GET", f"http://{host}/", seconds=5.0)


def test_a_body_goes_out_as_json_and_the_answer_comes_back() -> None:
    with http_answers({"/tasks": (202, "größe")}) as answers:
        reply = call("POST", f"{answers.url}/tasks", body={"a": [1]}, seconds=30.0)
    assert (reply.status, reply.body.decode()) == (202, "größe")
    assert answers.asked == [("/tasks", {"a": [1]})]
