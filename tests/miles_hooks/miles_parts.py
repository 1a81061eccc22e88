# Miles is on the path only of the process that runs this file.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
"""Fixtures of the checks beside this file: Miles' real classes around our hooks.

STUBS: the session server (replays recorded turns), the agent server, the tokenizer.
"""

import asyncio
import copy
import json
from argparse import Namespace
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from miles.rollout.base_types import GenerateFnInput
from miles.rollout.inference_rollout import inference_rollout_common
from miles.rollout.inference_rollout.compatibility import load_generate_function
from miles.utils import http_utils
from miles.utils.types import Sample

import generate
from tests.agent_server_stub import AgentServerStub, Answer, Request

Sample.__test__ = False


def record(prompt_ids: list[int], output_ids: list[int], finish: str = "stop") -> dict[str, Any]:
    choice = {
        "finish_reason": finish,
        "meta_info": {"output_token_logprobs": [[-0.5, token] for token in output_ids], "weight_version": "1"},
    }
    return {
        "timestamp": 0.0,
        "method": "POST",
        "path": "/v1/chat/completions",
        "request": {"input_ids": prompt_ids},
        "response": {"choices": [choice]},
        "status_code": 200,
    }


TWO_TURNS = [record([1, 2], [3, 4]), record([1, 2, 3, 4, 5], [6])]


class TokenizerStub:
    """STUB: one letter a token."""

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(96 + token) for token in ids)


@dataclass
class SessionServerStub:
    """STUB of Miles' session server: hands out sessions and replays the same turns for each."""

    records: list[dict[str, Any]] = field(default_factory=lambda: copy.deepcopy(TWO_TURNS))
    sessions: int = 0

    def answer(self, request: Request) -> Answer:
        if request.path == "/health":
            return Answer(json.dumps({"session_server_instance_id": "instance-1"}))
        if request.path == "/list_workers":
            return Answer(json.dumps({"urls": []}))
        if request.path == "/sessions":
            self.sessions += 1
            return Answer(json.dumps({"session_id": f"s{self.sessions}"}))
        if request.method == "DELETE":
            return Answer("{}")
        return Answer(json.dumps({"session_id": "s", "records": self.records, "metadata": {"max_trim_tokens": 0}}))


@dataclass
class Setup:
    args: Namespace
    sessions: SessionServerStub
    agent: AgentServerStub
    traces: Path

    def state(self) -> Any:
        state = object.__new__(inference_rollout_common.GenerateState)
        state.args, state.tokenizer, state.processor = self.args, TokenizerStub(), None
        state.sampling_params = {"temperature": 1.0, "max_new_tokens": 8}
        state.generate_fn_semaphore = asyncio.Semaphore(64)
        state.generate_function = load_generate_function("generate.generate")
        state.reset()
        return state

    async def one(self, sample: Sample | None = None, evaluation: bool = False) -> Any:
        given = GenerateFnInput(
            self.state(), sample or prompt(0), {"temperature": 1.0, "max_new_tokens": 8}, evaluation
        )
        return (await generate.generate(given)).samples


def prompt(index: int) -> Sample:
    metadata = {"instance_id": f"mkdir-train-{index:06}", "agent_name": "shell"}
    return Sample(group_index=index // 2, index=index, prompt="do", metadata=metadata)


@pytest.fixture
async def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Setup]:
    sessions, sessions_http = SessionServerStub(), AgentServerStub()
    sessions_http.answer = sessions.answer
    for cached in (generate._discards, generate._traces, generate._step_outcomes):
        cached.cache_clear()
    monkeypatch.setenv("AGENT_SERVER_WAIT", "0")
    monkeypatch.setenv("TRACES_DIR", str(tmp_path))
    monkeypatch.setenv("MAX_CONSECUTIVE_DISCARDS", "256")
    async with sessions_http.serving(), AgentServerStub().serving() as agent:
        monkeypatch.setenv("AGENT_SERVER_URL", agent.url)
        http_utils._http_client = None
        args = Namespace(
            session_server_ip="127.0.0.1",
            session_server_port=sessions_http.port,
            custom_agent_function_path="swe_agent_function.run",
            custom_rm_path="generate.reward_func",
            generate_multi_samples=False,
            max_seq_len=1024,
            use_rollout_routing_replay=False,
            rollout_num_gpus=8,
            rollout_num_gpus_per_engine=1,
            sglang_server_concurrency=8,
            sglang_enable_deterministic_inference=False,
            sglang_router_ip="127.0.0.1",
            sglang_router_port=sessions_http.port,
            use_miles_router=True,
            use_distributed_post=False,
            partial_rollout=False,
            mask_offpolicy_in_partial_rollout=False,
            group_rm=False,
            reward_key=None,
            rollout_global_dataset=True,
            rollout_batch_size=2,
            over_sampling_batch_size=1,
            n_samples_per_prompt=2,
            dynamic_sampling_filter_path="miles.rollout.filter_hub.dynamic_sampling_filters.check_no_aborted",
            rollout_sample_filter_path=None,
            rollout_all_samples_process_path=None,
            dumper_enable=False,
            dumper_inference=None,
            load_debug_rollout_data=None,
            wandb_always_use_train_step=False,
        )
        http_utils.init_http_client(args)
        yield Setup(args, sessions, agent, tmp_path)
        await http_utils._http_client.aclose()


def groups_in(metrics: dict[str, Any]) -> dict[str, float]:
    return {name: metrics[f"agent/groups/{name}"] for name in ("scored", "no_signal", "discarded", "never_ran")}
