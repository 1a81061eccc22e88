"""From an agent's name to Harbor's agent configuration."""

# pyright: reportMissingTypeStubs=false
# Harbor is typed but has no marker file that says so.

import inspect
import shutil
from collections.abc import Iterable, Mapping
from typing import Any, Final

from harbor.agents.base import BaseAgent
from harbor.agents.factory import AgentFactory
from harbor.agents.installed.base import BaseInstalledAgent
from harbor.models.trial.config import AgentConfig
from harbor.utils.import_path import import_class

from harbor_service.agent_options import BadAgentOptions
from harbor_service.own_agents import OWN_AGENTS, had_by
from harbor_service.run_request import MODEL_FREE, RunRequest

# What Harbor's constructor is given by Harbor itself; a record has no business there.
_HARBORS_OWN: Final = frozenset(inspect.signature(BaseAgent).parameters) | {"task_dir", "trial_paths"}
_SESSION_ARGUMENTS: Final = ("api_base", "sampling_params", "max_seq_len")
_SOME_MODEL: Final = "http://localhost/v1"  # never called
_classes: dict[str, type[BaseAgent]] = {}


def counts_model_calls(name: str) -> bool:
    """Whether the agent says how often it asked its model: without a call its trial is worth nothing."""
    return name in OWN_AGENTS


def agent_class(name: str) -> type[BaseAgent]:
    """The class behind `name`, imported at its first use (seconds for terminus-2).

    Raises:
        BadAgentOptions: there is none.
    """
    if name not in _classes:
        _classes[name] = _import(name)
    return _classes[name]


def is_imported(name: str) -> bool:
    """Whether `agent_class` answers at once."""
    return name in _classes


def agent_config(
    request: RunRequest, defaults: Mapping[str, Any], agent_timeout: float, setup_timeout: float, *, local: bool = False
) -> AgentConfig:
    """Harbor's configuration of the agent that `request` names; time-outs in seconds.

    `local` is true for the sandbox on this machine, which has no network and no image.

    Raises:
        BadAgentOptions: no such agent, it cannot run in this environment, `agent_options` over `defaults` cannot
        work, or the agent needs a base_url and has none.
    """
    name = request.agent_name
    common: dict[str, Any] = {"override_timeout_sec": agent_timeout, "override_setup_timeout_sec": setup_timeout}
    if name in MODEL_FREE:
        return AgentConfig(name=name, skip_model_parsing=True, **common)
    found = agent_class(name)
    if request.base_url is None and ":" not in name:
        raise BadAgentOptions(f"agent {name} needs base_url, the address of its model")
    if local and issubclass(found, BaseInstalledAgent):
        raise BadAgentOptions(
            f"agent {name} installs itself in the sandbox, and the local sandbox has no network: "
            f"use {', '.join(OWN_AGENTS)} or another --environment"
        )
    session = {
        "api_base": request.base_url,
        "sampling_params": request.sampling_params,
        "max_seq_len": request.max_seq_len,
    }
    if (own := OWN_AGENTS.get(name)) is not None:
        if local and own.needs and shutil.which(own.needs, path="/usr/bin:/usr/local/bin") is None:
            raise BadAgentOptions(f"agent {name} needs {own.needs}, and the local sandbox has this machine's /usr")
        options = {**had_by(own.options.names(), defaults), **(request.agent_options or {})}
        own.options.from_mapping(options)
        return AgentConfig(
            import_path=own.import_path,
            model_name=request.model or "openai/model",
            skip_model_parsing=True,
            kwargs={**session, "agent_options": options},
            **common,
        )
    accepted = _accepted(found)
    options = request.agent_options or {}
    if accepted is not None and (unknown := sorted(set(options) - accepted)):
        raise BadAgentOptions(f"unknown {name} agent option {', '.join(unknown)}; known: {', '.join(sorted(accepted))}")
    if misplaced := sorted(set(options) & _HARBORS_OWN):
        raise BadAgentOptions(f"agent option {', '.join(misplaced)} is set by Harbor and not by a record")
    parameters = inspect.signature(found).parameters
    endpoint = {"OPENAI_BASE_URL": request.base_url, "OPENAI_API_BASE": request.base_url, "OPENAI_API_KEY": "none"}
    return AgentConfig(
        **({"import_path": name} if ":" in name else {"name": name}),
        model_name=request.model or "openai/model",
        base_url=request.base_url if found.MODEL_CONNECTION is not None else None,
        env={key: value for key, value in endpoint.items() if value is not None} if request.base_url else {},
        kwargs={
            **{key: session[key] for key in _SESSION_ARGUMENTS if key in parameters},
            **(had_by(accepted, defaults) if accepted is not None else {}),
            **options,
        },
        **common,
    )


def refused_agents(names: Iterable[str], defaults: Mapping[str, Any], *, local: bool) -> dict[str, str]:
    """Those of `names` that no trial can have, and why; imports the others."""
    refused: dict[str, str] = {}
    for name in dict.fromkeys(names):
        request = RunRequest(instance_id="any", agent_name=name, base_url=_SOME_MODEL)
        try:
            agent_config(request, defaults, 1.0, 1.0, local=local)
        except BadAgentOptions as error:
            refused[name] = str(error)
    return refused


def _import(name: str) -> type[BaseAgent]:
    path = OWN_AGENTS[name].import_path if name in OWN_AGENTS else name
    if ":" not in path and path not in AgentFactory.registered_names():
        own = ", ".join((*OWN_AGENTS, *MODEL_FREE))
        others = ", ".join(sorted(set(AgentFactory.registered_names()) - {*OWN_AGENTS, *MODEL_FREE}))
        raise BadAgentOptions(f"unknown agent_name {name!r:.80}; known: {own}, MODULE:CLASS, and Harbor's {others}")
    try:
        if ":" in path:
            return import_class(path, base=BaseAgent, label="agent")
        return AgentFactory.get_agent_class_from_config(AgentConfig(name=path))
    except (Exception, SystemExit) as error:  # a module raises what it likes, or ends the process, and so us
        raise BadAgentOptions(f"agent {name:.80} cannot be used here: {type(error).__name__}: {error}") from error


def _accepted(found: type[BaseAgent]) -> set[str] | None:
    """Names of the options that a class of Harbor's or of the user's takes; None where it takes any."""
    if found.options_model is not None:
        return set(found.options_model.model_fields)
    parameters = inspect.signature(found).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    return set(parameters) - _HARBORS_OWN - set(_SESSION_ARGUMENTS)
