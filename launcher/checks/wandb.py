"""Whether W&B would find a key; the key itself is never looked at."""

from __future__ import annotations

import netrc
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from launcher.preflight import Finding, failure, ok

_NAME = "W&B"
_HOST = "api.wandb.ai"


def check_wandb_key(environment: Mapping[str, str]) -> Finding:
    """`environment` is that of the process which logs."""
    if environment.get("WANDB_MODE") in ("offline", "disabled", "dryrun"):
        return ok(_NAME, f"WANDB_MODE={environment['WANDB_MODE']}, no key needed")
    host = urlsplit(environment.get("WANDB_BASE_URL", "")).hostname or _HOST
    if environment.get("WANDB_API_KEY") or _in_netrc(host, environment.get("NETRC")):
        return ok(_NAME, "a key is there")
    return failure(
        _NAME,
        f"no key for {host} in WANDB_API_KEY or netrc",
        "run `wandb login` there, or set WANDB_MODE=offline",
    )


def _in_netrc(host: str, file: str | None) -> bool:
    try:
        path = Path(os.path.expanduser(file or "~/.netrc"))
        if not path.is_file():  # opening a pipe would wait for its other end
            return False
        entries = netrc.netrc(str(path))
    except (OSError, ValueError, netrc.NetrcParseError):
        return False
    return entries.authenticators(host) is not None
