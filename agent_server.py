"""Agent server: runs one Harbor trial for each POST /run and answers with its reward.

    python agent_server.py --environment local --harbor-tasks-dir made-tasks --port 11000
    python agent_server.py check --environment local --tasks-dir made-tasks     # can these tasks be trained on?

Exit codes: 0 ended by SIGTERM or with its parent, 2 a setting cannot work, 3 the environment cannot work here,
130 Ctrl-C. `check` has its own: see harbor_service/check_command.py.
"""

import logging
import sys


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # One line for each request of each trial helps nobody and costs CPU.
    for name in ("httpx", "harbor.utils.logger"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        # Only here: Ctrl-C during the seconds of these imports is answered as at any other time.
        if sys.argv[1:2] == ["check"]:
            from harbor_service.check_command import check_main

            return check_main(sys.argv[2:])
        from harbor_service.serve_command import serve_main

        return serve_main(sys.argv[1:])
    except KeyboardInterrupt:
        print("agent_server.py: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
