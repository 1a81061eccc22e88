"""The session server instances of a run, as the Miles of each age names them."""

from collections.abc import Iterable, Mapping
from typing import Any, cast


def instance_ids(args: Any) -> list[str]:
    """Ids of all session server instances, in order, each once.

    The newest Miles lists objects, August maps ports to ids, older ones name a single instance.
    """
    found: list[object] = []
    for instance in cast(Iterable[Any], getattr(args, "session_server_instances", None) or ()):
        found.append(getattr(instance, "instance_id", None))
    by_port: object = getattr(args, "session_server_instance_ids", None) or {}
    found.extend(cast(Mapping[Any, Any], by_port).values() if isinstance(by_port, Mapping) else cast(Any, by_port))
    found.append(getattr(args, "session_server_instance_id", None))
    return list(dict.fromkeys(str(instance_id) for instance_id in found if instance_id))
