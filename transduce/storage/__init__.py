"""Files and folders that are complete or absent: checkpoints, bundles, and locks on folders."""

from importlib.util import find_spec

from transduce.errors import TransduceError

if find_spec("fcntl") is None:
    raise TransduceError(
        "this system has no fcntl, with which transduce locks files; "
        "use Linux or macOS, or on Windows the Windows Subsystem for Linux (WSL)"
    )
