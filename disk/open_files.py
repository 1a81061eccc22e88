"""How many files and sockets this process may have open."""

import resource

# Not more: sandboxes inherit it, and programs that close every possible descriptor take seconds for 2**30.
ENOUGH = 65_536


def allow_open_files() -> int:
    """Raise the soft limit of open files to the hard one, at most ENOUGH; answers what now holds (-1: no limit).

    Each trajectory holds a socket for as long as it lasts, on both sides; the usual soft limit of 1,024 ends there
    with failures that look like a server that cannot be reached.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(ENOUGH, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
