"""Is the run advancing, is it learning, what is wrong? Answered from the files in its folder.

    python verify_progress.py runs/<run-id>                        one look: verdict, table of steps, findings
    python verify_progress.py runs/<run-id> --follow               until the run has finished
    python verify_progress.py runs/<run-id> --html run.html        a page with the trajectories
    python verify_progress.py compare runs/<one> runs/<other>      two runs at equal steps

Exit codes: 0 ADVANCING or FINISHED, 1 STALLED, FAILING or NO SIGNAL, 2 NO DATA or an option that cannot work, 130
stopped by Ctrl-C.
"""

import sys


def main() -> int:
    try:
        # Only here: Ctrl-C during these imports is answered as at any other time.
        from progress.command import compare_main, verify_main

        if sys.argv[1:2] == ["compare"]:
            return compare_main(sys.argv[2:])
        return verify_main(sys.argv[1:])
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
