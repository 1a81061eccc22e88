"""Calls of the agent function, and every variable that it reads."""

from typing import Any

import swe_agent_function

SETTINGS = (
    "AGENT_SERVER_URL",
    "SWE_AGENT_URL",
    "AGENT_MODEL_NAME",
    "SWE_AGENT_MODEL_NAME",
    "AGENT_SERVER_TOKEN_FILE",
    "AGENT_SERVER_WAIT",
    "AGENT_TRIAL_TIMEOUT",
    "AGENT_SERVER_MAX_CONNECTIONS",
    "MILES_ROUTER_EXTERNAL_HOST",
    "SANDBOX_AUTO_STOP_MINUTES",
    "SANDBOX_AUTO_DELETE_MINUTES",
    "HARBOR_ADMIN_SECRET",
    "HARBOR_ADMIN_SECRET_FILE",
)
METADATA = {"instance_id": "mkdir-train-000017", "agent_name": "shell", "split": "train"}


async def run(metadata: dict[str, Any] | None = None, base_url: str = "http://10.0.0.1:30000/sessions/s1") -> Any:
    return await swe_agent_function.run(
        base_url=base_url,
        prompt=[{"role": "user", "content": "x"}],
        request_kwargs={"temperature": 0.8, "max_tokens": 64},
        metadata=METADATA if metadata is None else metadata,
    )
