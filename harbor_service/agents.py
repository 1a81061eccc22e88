"""From an agent's name to Harbor's agent configuration."""

# pyright: reportMissingTypeStubs=false
# Harbor is typed but has no marker file that says so.

from collections.abc import Mapping
from typing import Any

from harbor.models.trial.config import AgentConfig

from harbor_service.run_request import MODEL_FREE, RunRequest
from harbor_service.shell_options import BadAgentOptions, ShellOptions


def agent_config(
    request: RunRequest, defaults: Mapping[str, Any], agent_timeout: float, setup_timeout: float
) -> AgentConfig:
    """Harbor's configuration of the agent that `request` names; time-outs in seconds.

    Raises:
        BadAgentOptions: `agent_options` over `defaults` cannot work, or the agent needs a base_url and has none.
    """
    common: dict[str, Any] = {
        "override_timeout_sec": agent_timeout,
        "override_setup_timeout_sec": setup_timeout,
        "skip_model_parsing": True,
    }
    if request.agent_name in MODEL_FREE:
        return AgentConfig(name=request.agent_name, **common)
    if ":" in request.agent_name:
        kwargs = dict(request.agent_options or {})
        return AgentConfig(
            import_path=request.agent_name, model_name=request.model or "openai/model", kwargs=kwargs, **common
        )
    if request.base_url is None:
        raise BadAgentOptions(f"agent {request.agent_name} needs base_url, the address of its model")
    options = {**defaults, **(request.agent_options or {})}
    ShellOptions.from_mapping(options)
    return AgentConfig(
        import_path="harbor_service.shell_agent:ShellAgent",
        model_name=request.model or "openai/model",
        kwargs={
            "api_base": request.base_url,
            "sampling_params": request.sampling_params,
            "max_seq_len": request.max_seq_len,
            "shell_options": options,
        },
        **common,
    )
