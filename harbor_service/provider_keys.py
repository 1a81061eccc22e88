"""Keys of sandbox providers from files, so that no command line and no process list shows them."""

from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from harbor_service.bad_setting import BadSetting

# What the providers' own libraries read from this process' environment; no sandbox ever sees it.
PROVIDER_KEYS: Final = ("DAYTONA_API_KEY", "E2B_API_KEY", "MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET")
SERVER_SECRETS: Final = (*PROVIDER_KEYS, "HARBOR_ADMIN_SECRET")


def load_provider_keys(environ: MutableMapping[str, str], environment: str) -> list[str]:
    """Fill each key that is not set from the file that `<NAME>_FILE` names; answers all keys.

    Of them only those that `environment` has a use for stay in `environ`; one's own, named by its import path, keeps
    all. What is not there no task can ask for: Docker Compose, for one, fills in a task's file from there.

    Raises:
        BadSetting: a file that cannot be read or holds no key.
    """
    for name in PROVIDER_KEYS:
        path = environ.get(f"{name}_FILE")
        if not path or environ.get(name):
            continue
        try:
            key = Path(path).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadSetting(f"{name}_FILE={path} cannot be read: {error}") from error
        if not key or not key.isprintable():
            raise BadSetting(f"{name}_FILE={path} holds no key")
        environ[name] = key
    keys = [environ[name] for name in SERVER_SECRETS if environ.get(name)]
    for name in SERVER_SECRETS:
        if ":" not in environment and not name.startswith(f"{environment.upper()}_"):
            environ.pop(name, None)
    return keys
