"""The OpenAI-compatible front over real sessions and a real sampler, through HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import torch

from local_engine.batcher import Batcher
from local_engine.sampler import Sampler
from local_engine.session import ChatTokenizer, Sessions
from local_engine.session_server import SessionServer, make_app
from tests.local_engine.conftest import plain_log_probs

ASK: list[dict[str, Any]] = [{"role": "system", "content": "Answer."}, {"role": "user", "content": "Show the files."}]


class Server:
    """The whole path from HTTP to the model in this event loop."""

    def __init__(self, sampler: Sampler, tokenizer: Any) -> None:
        self.sampler = sampler
        self.executor = ThreadPoolExecutor(1)
        self.batcher = Batcher(sampler, self.executor)
        self.sessions = Sessions(self.batcher, ChatTokenizer(tokenizer), max_seq_len=300, default_max_new_tokens=12)
        app = make_app(self.sessions, default_temperature=0.7, model_name="tiny", instance_id="instance-1")
        self.http = SessionServer(app)

    async def new(self, client: httpx.AsyncClient) -> str:
        return (await client.post("/sessions")).json()["session_id"]


@pytest.fixture
async def server(make_sampler: Callable[..., Sampler], tokenizer: Any) -> AsyncIterator[Server]:
    made = Server(make_sampler(4, end_tokens=(tokenizer.eos_token_id,)), tokenizer)
    made.batcher.start()
    await made.http.start()
    yield made
    await made.http.stop()
    await made.batcher.stop()
    made.executor.shutdown()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.http.url, timeout=30, trust_env=False) as made:
        yield made


async def test_a_conversation_and_the_sample_that_is_made_of_it(
    server: Server, client: httpx.AsyncClient, plain_model: Any
) -> None:
    session, messages = await server.new(client), list(ASK)
    sampled: list[list[int]] = []
    for turn in range(3):
        reply = await client.post(f"/sessions/{session}/v1/chat/completions", json={"model": "m", "messages": messages})
        assert reply.status_code == 200, reply.text
        body = reply.json()
        (choice,) = body["choices"]
        logged = choice["meta_info"]["output_token_logprobs"]
        sampled.append([token for _, token, _ in logged])
        assert body["usage"]["completion_tokens"] == len(logged)
        assert choice["finish_reason"] in ("stop", "length")
        messages = [*messages, choice["message"], {"role": "user", "content": f"Exit code {turn}."}]
    shown = (await client.get(f"/sessions/{session}")).json()
    (sample,) = shown["samples"]
    assert (await client.get(f"/sessions/{session}/samples")).json() == {"samples": [sample]}
    assert shown["messages"] == messages[:-1]
    response = sample["tokens"][-sample["response_length"] :]
    model_tokens = [t for t, m in zip(response, sample["loss_mask"], strict=True) if m]
    assert model_tokens == [token for turn in sampled for token in turn]
    want = plain_log_probs(plain_model, sample["tokens"], 0.7)[-sample["response_length"] :]
    mask = torch.tensor(sample["loss_mask"]).bool()
    torch.testing.assert_close(torch.tensor(sample["rollout_log_probs"])[mask], want[mask], atol=1e-4, rtol=0)
    assert (await client.delete(f"/sessions/{session}")).status_code == 204
    assert (await client.get(f"/sessions/{session}")).status_code == 404


async def test_many_sessions_at_once_share_the_prompt(server: Server, client: httpx.AsyncClient) -> None:
    sessions = [await server.new(client) for _ in range(8)]  # twice as many as slots
    replies = await asyncio.gather(
        *(client.post(f"/sessions/{s}/v1/chat/completions", json={"messages": ASK}) for s in sessions)
    )
    assert [r.status_code for r in replies] == [200] * 8
    prompt = replies[0].json()["usage"]["prompt_tokens"]
    generated = sum(r.json()["usage"]["completion_tokens"] for r in replies)
    assert server.sampler.tokens_computed < prompt * 3 + generated + 8


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"top_p": 0.9}, "top_p=0.9"),
        ({"n": 2}, "n=2"),
        ({"stream": True}, "stream=True"),
        ({"tools": [{"type": "function"}]}, "tools="),
        ({"logit_bias": {"5": 1}}, "logit_bias="),
        ({"seed": 3, "presence_penalty": 0.5}, "seed=3, presence_penalty=0.5"),
    ],
)
async def test_what_is_not_supported_is_refused_by_name(
    extra: dict[str, Any], named: str, server: Server, client: httpx.AsyncClient
) -> None:
    session = await server.new(client)
    reply = await client.post(f"/sessions/{session}/v1/chat/completions", json={"messages": ASK, **extra})
    assert reply.status_code == 400
    assert named in reply.json()["error"]["message"]
    assert reply.json()["error"]["code"] == "unsupported_parameter"
    assert not server.sessions.get(session).turns
    assert (await client.get(f"/sessions/{session}/samples")).json() == {"samples": []}


async def test_parameters_that_change_nothing_are_accepted(server: Server, client: httpx.AsyncClient) -> None:
    session = await server.new(client)
    neutral = {"top_p": 1.0, "n": 1, "stream": False, "logprobs": True, "top_k": -1, "seed": None, "user": "x"}
    reply = await client.post(f"/sessions/{session}/v1/chat/completions", json={"messages": ASK, **neutral})
    assert reply.status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": []},
        {"messages": [{"content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"messages": ASK, "temperature": -1},
        {"messages": ASK, "max_tokens": 0},
    ],
)
async def test_malformed_requests_are_refused(body: dict[str, Any], server: Server, client: httpx.AsyncClient) -> None:
    session = await server.new(client)
    assert (await client.post(f"/sessions/{session}/v1/chat/completions", json=body)).status_code == 422


@pytest.mark.parametrize(
    "fields",
    [
        '"temperature": NaN',
        '"stop_regex": "a{99999999999999}"',
        f'"stop_regex": "{"(" * 5000 + ")" * 5000}"',
        r'"messages": [{"role": "user", "content": "\ud800"}]',
        r'"messages": [{"role": "\ud800", "content": "x"}]',
    ],
)
async def test_what_no_engine_could_use_is_the_callers_fault(
    fields: str, server: Server, client: httpx.AsyncClient
) -> None:
    session = await server.new(client)
    body = f'{{"messages": [{{"role": "user", "content": "x"}}], {fields}}}'
    headers = {"Content-Type": "application/json"}
    reply = await client.post(f"/sessions/{session}/v1/chat/completions", content=body, headers=headers)
    assert reply.status_code == 422, reply.text


async def test_limits_of_the_request_are_kept(server: Server, client: httpx.AsyncClient) -> None:
    for limit in ({"max_tokens": 3}, {"max_completion_tokens": 3}):
        session = await server.new(client)
        reply = await client.post(f"/sessions/{session}/v1/chat/completions", json={"messages": ASK, **limit})
        assert reply.json()["usage"]["completion_tokens"] <= 3


async def test_rewritten_history_is_a_conflict(server: Server, client: httpx.AsyncClient) -> None:
    session = await server.new(client)
    path = f"/sessions/{session}/v1/chat/completions"
    first = await client.post(path, json={"messages": ASK})
    said = first.json()["choices"][0]["message"]
    rewritten = [ASK[0], {"role": "user", "content": "Other."}, said, {"role": "user", "content": "Go on."}]
    reply = await client.post(path, json={"messages": rewritten})
    assert reply.status_code == 409
    assert reply.json()["error"]["code"] == "history_not_extended"
    ok = await client.post(path, json={"messages": [*ASK, said, {"role": "user", "content": "Go on."}]})
    assert ok.status_code == 200


async def test_a_conversation_that_does_not_fit_is_the_error_that_agents_understand(
    server: Server, client: httpx.AsyncClient
) -> None:
    from harbor_service.model_client import ContextLengthExceededError, close_shared_client, complete

    session = await server.new(client)
    long = [*ASK[:1], {"role": "user", "content": "x y z " * 400}]
    reply = await client.post(f"/sessions/{session}/v1/chat/completions", json={"messages": long})
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "context_length_exceeded"
    with pytest.raises(ContextLengthExceededError):
        await complete(f"{server.http.url}/sessions/{session}/v1", {"messages": long})
    await close_shared_client()


async def test_an_unknown_session_is_not_found(client: httpx.AsyncClient) -> None:
    for method, path in (("POST", "/v1/chat/completions"), ("GET", ""), ("DELETE", "")):
        reply = await client.request(method, f"/sessions/none{path}", json={"messages": ASK})
        assert reply.status_code == 404


async def test_hanging_up_cancels_the_turn(server: Server, client: httpx.AsyncClient) -> None:
    """The slowed model would answer for minutes; its session is free again within a second or two."""
    entered = asyncio.Event()
    loop, step = asyncio.get_running_loop(), server.sampler.step

    def slow_step() -> Any:
        loop.call_soon_threadsafe(entered.set)
        for generation in [g for _, g in server.sampler._decoding]:
            generation.ids[1:], generation.log_probs[1:] = [], []  # never long enough
        return step()

    server.sampler.step = slow_step
    session = await server.new(client)
    path = f"/sessions/{session}/v1/chat/completions"
    task = asyncio.create_task(client.post(path, json={"messages": ASK, "max_tokens": 250}))
    await asyncio.wait_for(entered.wait(), 10)
    assert server.sessions.get(session).busy
    task.cancel()
    async with asyncio.timeout(10):
        while server.sessions.get(session).busy or server.sampler.busy:
            await asyncio.sleep(0.05)
    assert not server.sessions.get(session).turns
    del server.sampler.step
    assert (await client.post(path, json={"messages": ASK})).status_code == 200


async def test_health_names_the_instance(client: httpx.AsyncClient) -> None:
    assert (await client.get("/health")).json() == {"status": "ok", "session_server_instance_id": "instance-1"}
