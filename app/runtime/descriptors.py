"""File descriptors: how many this process may hold open, which is what its connections cost."""

from __future__ import annotations

import resource

ENOUGH = 65_536  # more than this process ever uses; where the hard limit is "unlimited"


def raise_limit() -> int:
    """Raise the soft limit to the hard one, and return what it is then. Shells and service managers
    set the soft limit to 1,024 for programs that call select(2), which this one does not do with
    sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # a system with a lower limit of its own
            return soft
        return wanted
    return ENOUGH if soft == resource.RLIM_INFINITY else soft
