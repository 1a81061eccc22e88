"""`agent_server.py` without a command: serve until a signal or the end of the parent."""

import asyncio
import logging
import os
import sys
from collections.abc import Sequence

from harbor_service.bad_setting import BadSetting
from harbor_service.command_line import parse_settings
from harbor_service.environments import BadEnvironment, check_environment, clear_leftovers, environment_config
from harbor_service.provider_keys import load_provider_keys
from harbor_service.server import serve


def serve_main(argv: Sequence[str]) -> int:
    """The exit code: 0 ended, 2 a setting cannot work, 3 the environment cannot work here, 130 after Ctrl-C."""
    try:
        settings = parse_settings(argv)
        keys = load_provider_keys(os.environ, settings.environment)
        environment = environment_config(
            settings.environment, settings.environment_options, unsafe=settings.unsafe_no_sandbox
        )
        check_environment(environment)
        if leftovers := clear_leftovers(environment):
            logging.warning("removed what an earlier server left: %s", ", ".join(leftovers))
        return asyncio.run(serve(settings, keys))
    except BadSetting as error:
        print(f"agent_server.py: {error}", file=sys.stderr)
        return 2
    except BadEnvironment as error:
        print(f"agent_server.py: environment: {error}", file=sys.stderr)
        return 3
