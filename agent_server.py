"""Agent server: runs one Harbor trial for each POST /run and answers with its reward.

    python agent_server.py --environment local --harbor-tasks-dir made-tasks --port 11000
    python agent_server.py check --environment local --tasks-dir made-tasks     # can these tasks be trained on?

Exit codes: 0 ended by SIGTERM or with its parent, 2 a setting cannot work, 3 the environment cannot work here,
130 Ctrl-C. `check` has its own: see harbor_service/check_command.py.
"""

import asyncio
import logging
import os
import sys

from harbor_service.check_command import check_main
from harbor_service.command_line import parse_settings
from harbor_service.environments import BadEnvironment, check_environment, clear_leftovers, environment_config
from harbor_service.provider_keys import load_provider_keys
from harbor_service.server import serve
from harbor_service.settings import BadSetting


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # One line for each request of each trial helps nobody and costs CPU.
    for name in ("httpx", "harbor.utils.logger"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if sys.argv[1:2] == ["check"]:
        return check_main(sys.argv[2:])
    try:
        settings = parse_settings(sys.argv[1:])
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


if __name__ == "__main__":
    sys.exit(main())
