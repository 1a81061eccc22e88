"""How long a provider keeps a sandbox whose server is gone: set on every trial, so that none is paid for for ever."""

# pyright: reportMissingTypeStubs=false
# Harbor is typed but has no marker file that says so.

import math
from collections.abc import Sequence
from typing import Any, Final

from harbor.models.environment_type import EnvironmentType
from harbor.models.trial.config import EnvironmentConfig

from harbor_service.environments import environment_option

_DAY_MINUTES: Final = 24 * 60
_SPARE_MINUTES: Final = 30
_E2B_RENEWALS: Final = 3  # within one lifetime, so that a renewal that is lost once ends no trial
_E2B_RENEW_SECONDS: Final = 600.0


def with_lifetime(
    config: EnvironmentConfig, stop: int | None, delete: int | None, trial_seconds: float
) -> EnvironmentConfig:
    """`config` with the provider's limits, where it has such limits and `--environment-option` sets none.

    `stop` and `delete` are the minutes that a run asks for (idle until stopped, stopped until deleted), None where it
    does not. Without: the longest trial (`trial_seconds`, may be infinite) and half an hour, and a day.

    Daytona has both. E2B and Modal delete what they stop. E2B's limit is renewed while the server lives and is left
    at Harbor's hour unless the run asks. Modal's is the sandbox's whole life, at most a day, so it is never less than
    a trial may take; what a run asks for becomes Modal's idle limit.
    """
    least = math.ceil(min(trial_seconds / 60, float(_DAY_MINUTES))) + _SPARE_MINUTES
    wanted: dict[str, Any] = {}
    match config.type:
        case EnvironmentType.DAYTONA:
            wanted["auto_stop_interval_mins"] = least if stop is None else stop
            wanted["auto_delete_interval_mins"] = _DAY_MINUTES if delete is None else delete
        case EnvironmentType.E2B if stop is not None and "sandbox_timeout_sec" not in config.kwargs:
            wanted["sandbox_timeout_sec"] = stop * 60
            wanted["renew_interval_sec"] = min(_E2B_RENEW_SECONDS, stop * 60 / _E2B_RENEWALS)
        case EnvironmentType.MODAL:
            wanted["sandbox_timeout_secs"] = min(least, _DAY_MINUTES) * 60
            if stop is not None:
                wanted["sandbox_idle_timeout_secs"] = stop * 60
        case _:
            return config
    return config.model_copy(update={"kwargs": wanted | config.kwargs})


def fixed_lifetime(name: str, options: Sequence[str] = ()) -> dict[str, int | None]:
    """Minutes that the server's own options set, for /health; None: what the run asks for."""
    if name != EnvironmentType.DAYTONA.value:
        return {}
    given = dict(environment_option(text) for text in options)
    minutes = {what: given.get(f"auto_{what}_interval_mins") for what in ("stop", "delete")}
    return {
        f"sandbox_auto_{what}_minutes": value if isinstance(value, int) else None for what, value in minutes.items()
    }
