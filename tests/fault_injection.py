"""Faults of a disk, injected: processes killed at any line, full file systems, edited manifests."""

import errno
import io
import json
import os
import signal
import sys
import traceback

from transduce.storage.sealed_folder import MANIFEST, sealed


def listing(parent):
    return sorted(path.name for path in parent.iterdir())


def rewrite_manifest(path, **changes):
    """Change entries of a manifest, and give it the right checksum."""
    manifest = json.loads((path / MANIFEST).read_text()) | changes
    manifest.pop("sha256")
    (path / MANIFEST).write_text(json.dumps(sealed(manifest)))


class FillingDisk:
    """Replaces `open`: after `room` bytes in all files together, the disk is full."""

    def __init__(self, room):
        self.room = room

    def __call__(self, path, mode):
        if mode != "xb":
            return open(path, mode)
        disk = self

        class Limited(io.BufferedWriter):
            def write(self, chunk):
                fitting = bytes(chunk)[: disk.room]
                disk.room -= len(fitting)
                super().write(fitting)
                if len(fitting) < len(chunk):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return len(fitting)

        return Limited(io.FileIO(path, "x"))


def killed_at_each_point(work, modules, stride=1, first=1):
    """Run `work` again and again, killed before another line of those modules each time, until it finishes."""
    point = first
    while _is_killed(work, point, {module.__file__ for module in modules}):
        yield point
        point += stride


def _is_killed(work, point, files):
    """Return whether `work` reaches that many lines of the files; there, its process is killed."""
    child = os.fork()
    if child == 0:
        try:
            sys.settrace(_killer(point, files))
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


def _killer(point, files):
    reached = 0

    def trace(frame, event, _):
        nonlocal reached
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            reached += 1
            if reached == point:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    return trace
