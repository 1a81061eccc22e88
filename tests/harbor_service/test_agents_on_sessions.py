"""Each agent against the real session server of the local engine and an untrained model, through real trials.

What such a model writes is in no agent's form, which is where agents rewrite their history.
"""

import math
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from harbor_service.environments import environment_config
from harbor_service.model_client import close_shared_client
from harbor_service.run_request import RunRequest
from harbor_service.task_store import TaskStore
from harbor_service.trial_folders import TrialFolders
from harbor_service.trial_runner import TrialRunner
from local_engine import kv_cache
from local_engine.batcher import Batcher
from local_engine.pretrained import load_causal_lm, load_tokenizer
from local_engine.sampler import Sampler
from local_engine.session import ChatTokenizer, Sessions
from local_engine.session_server import SessionServer, make_app
from tests.local_engine.tiny_model import make_checkpoint

CPU = torch.device("cpu")
TURNS = 3


@pytest.fixture
async def session_server(tmp_path: Path) -> AsyncIterator[str]:
    checkpoint = str(make_checkpoint(tmp_path / "model"))
    tokenizer = load_tokenizer(checkpoint)
    model = load_causal_lm(checkpoint, dtype=torch.float32, attention=kv_cache.ATTENTION, device=CPU)
    sampler = Sampler(model, tokenizer, slots=2, end_tokens=(tokenizer.eos_token_id,), device=CPU)
    with ThreadPoolExecutor(1) as executor:
        batcher = Batcher(sampler, executor)
        sessions = Sessions(batcher, ChatTokenizer(tokenizer), max_seq_len=30_000, default_max_new_tokens=64)
        http = SessionServer(make_app(sessions, default_temperature=0.7, model_name="tiny", instance_id="one"))
        batcher.start()
        await http.start()
        yield http.url
        await http.stop()
        await batcher.stop()


@pytest.mark.parametrize("agent", ["shell", "mini-swe-agent", "terminus-2"])
async def test_every_turn_of_an_episode_extends_the_session(
    session_server: str, tasks_dir: Path, tmp_path: Path, agent: str
) -> None:
    runner = TrialRunner(
        tasks=TaskStore(tasks_dir),
        environment=environment_config("local"),
        folders=TrialFolders(tmp_path, keep_seconds=math.inf, keep_bytes=math.inf),
        agent_timeout=120.0,
        setup_timeout=60.0,
        agent_options={"max_turns": TURNS},
    )
    async with httpx.AsyncClient(base_url=session_server, timeout=60) as client:
        session = (await client.post("/sessions")).json()["session_id"]
        request = RunRequest(
            instance_id="mkdir-1",
            agent_name=agent,
            base_url=f"{session_server}/sessions/{session}/v1",
            agent_options={"example_turns": []} if agent == "shell" else {},
            sampling_params={"temperature": 0.7, "stop_regex": ["(?s).{4}"]},
        )
        outcome = await runner.run(tasks_dir / "mkdir-1", request, await runner.agent_of(request))
        shown: dict[str, Any] = (await client.get(f"/sessions/{session}")).json()
    await close_shared_client()
    metrics = outcome.agent_metrics
    assert (metrics["endpoint_failures"], metrics["turns"], outcome.reward) == (0, TURNS, 0.0), outcome
    assert sum(message["role"] == "assistant" for message in shown["messages"]) == TURNS
    (sample,) = shown["samples"]
    assert sum(sample["loss_mask"]) == metrics["output_tokens"]
