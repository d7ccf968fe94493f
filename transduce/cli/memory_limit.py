"""Limits on memory (`ulimit -v`): a library that ends the process becomes one line, too.

Where memory is missing, Python raises an error, but some libraries call `abort` or `exit`, or crash
(OpenBLAS while it is imported, C++ code without exceptions). Nothing in the process can catch this,
so with such a limit the command runs in a child process.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable


def is_limited() -> bool:
    """Return whether this process may use only a part of the address space."""
    try:
        import resource
    except ImportError:
        return False
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return soft != resource.RLIM_INFINITY


def run_in_child(work: Callable[[], int]) -> int:
    """Run `work` in a child process and return its status; 2 if something ended it from inside."""
    reader, writer = os.pipe()
    # Signals wait until this process asks for them, so that none is lost before the child ends.
    awaited = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(reader)
        status = work()
        os.write(writer, b"!")  # Python is still in control
        sys.exit(status)

    # Ctrl-C reaches both processes, and the child answers it; other signals are passed on.
    os.close(writer)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended = 0
    while not ended:
        number = signal.sigwait(awaited)
        if number != signal.SIGCHLD:
            os.kill(child, number)  # if it has ended, it is still there to be waited for
        ended, waited = os.waitpid(child, os.WNOHANG)
    status = os.waitstatus_to_exitcode(waited)

    has_ended_itself = bool(os.read(reader, 1))
    if has_ended_itself or -status in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP):
        return status if status >= 0 else 128 - status
    print(f"transduce: {_describe_limit()}", file=sys.stderr)
    return 2


def _describe_limit() -> str:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return (
        f"there is too little memory: a library ended the process, and ulimit -v allows "
        f"{soft / 1e6:,.0f} MB; raise this limit"
    )
