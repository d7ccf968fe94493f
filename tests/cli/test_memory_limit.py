"""With `ulimit -v`, whatever ends the process is one line and a status."""

import resource
import signal
import subprocess
import sys

import pytest

PREFIX = (
    "import os, resource, signal, sys, time\nfrom transduce.cli.memory_limit import run_in_child\n"
)
LIMIT = "resource.setrlimit(resource.RLIMIT_AS, (10**9, 10**9))\n"


def run(work):
    """Return the status and the messages of a process whose child does some work."""
    code = f"{PREFIX}{LIMIT}def work():\n    {work}\n    return 0\nsys.exit(run_in_child(work))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "end", ["os.abort()", "os._exit(1)", "os.kill(os.getpid(), signal.SIGSEGV)"]
)
def test_a_library_that_ends_the_process_is_named_in_one_line(end):
    assert run(end) == (
        2,
        "transduce: there is too little memory: a library ended the process, and ulimit -v allows "
        "1,000 MB; raise this limit\n",
    )


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("pass", 0),
        ("return 2", 2),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137),  # the kernel, or a user
        ("os.kill(os.getppid(), signal.SIGTERM); time.sleep(20)", 128 + signal.SIGTERM),
    ],
)
def test_every_other_end_keeps_its_status(end, status):
    assert run(end) == (status, "")


@pytest.mark.parametrize("megabytes", [500, pytest.param(450, marks=pytest.mark.slow)])
def test_a_command_with_little_memory_ends_with_one_line_of_ours(megabytes):
    most = megabytes * 10**6
    done = subprocess.run(
        [sys.executable, "-m", "transduce", "describe", "tiny"],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)),
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("transduce: there is too little memory: ")
