"""The body of `POST /run`, checked before a trial is queued."""

from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from harbor_service.own_agents import SHELL

MODEL_FREE: Final = ("oracle", "nop")  # act without a model: their trials are judged without a count of model calls


class RunRequest(BaseModel):
    """One record's metadata and where its model answers; fields of the record that nobody here reads are kept."""

    model_config = ConfigDict(extra="allow", strict=True)

    instance_id: str = Field(min_length=1)
    agent_name: str = Field(default=SHELL, min_length=1)
    base_url: str | None = None  # OpenAI root of the session, ends in /v1
    model: str = ""
    sampling_params: dict[str, Any] = Field(default_factory=dict[str, Any])
    max_seq_len: int | None = Field(default=None, ge=1)  # tokens, prompt and completion together
    session_server_id: str | None = None
    session_server_instance_id: str | int | None = None
    agent_options: dict[str, Any] | None = None
    sandbox_auto_stop_minutes: int | None = Field(default=None, ge=1)
    sandbox_auto_delete_minutes: int | None = Field(default=None, ge=1)

    @field_validator("base_url")
    @classmethod
    def _base_url_is_http(cls, url: str | None) -> str | None:
        if url is None:
            return None
        try:
            url.encode()
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # brackets without an address, a port that is none, half a surrogate pair
            usable = False
        if not usable:
            raise ValueError(f"base_url must be http(s)://host[:port]/..., not {url!r:.80}")
        return url

    @property
    def owner(self) -> str | None:
        """The session server instance whose flush ends this trial."""
        return None if self.session_server_instance_id is None else str(self.session_server_instance_id)


class FlushRequest(BaseModel):
    """The body of `POST /flush`."""

    model_config = ConfigDict(extra="allow", strict=True)

    session_server_instance_id: str | int


class TasksRequest(BaseModel):
    """The body of `POST /tasks`."""

    model_config = ConfigDict(extra="allow", strict=True)

    instance_ids: list[str]
    agent_names: list[Annotated[str, Field(min_length=1)]] | None = None

    @field_validator("instance_ids", "agent_names")
    @classmethod
    def _names_can_be_answered(cls, names: list[str] | None) -> list[str] | None:
        for number, name in enumerate(names or ()):
            try:
                name.encode()
            except UnicodeEncodeError:
                raise ValueError(f"item {number} is no text that UTF-8 can hold") from None
        return names
