"""Ctrl-C is answered at once, even while one long operation runs."""

import os
import signal
import subprocess
import sys
import time

import pytest

CODE = """
import hashlib, sys, time
from transduce.training import signals
signals.PATIENCE_SECONDS = 0.3
with signals.catch_signals() as caught:
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", int(sys.argv[1]))  # no signal handler runs in it
print("saved", caught.received, flush=True)
"""


@pytest.mark.parametrize(("times", "iterations"), [(1, 2_000_000), (2, 2_000_000_000)])
def test_ctrl_c_is_answered_during_a_long_operation_and_a_second_one_leaves(times, iterations):
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, str(iterations)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == b"\n"
    assert b"saved after this step; Ctrl-C again leaves at once" in process.stderr.readline()
    if times == 2:
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=30)
    if times == 2:
        assert (process.returncode, out) == (130, b"")
        assert b"left without saving; the same command continues" in error
    else:
        assert (process.returncode, out, error) == (0, b"saved ['SIGINT']\n", b"")


def test_ctrl_c_while_modules_are_imported_is_one_line():
    code = (
        "import sys, signal, os\n"
        # A program that was started in the background ignores it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'transduce.cli.commands':\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from transduce.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=dict(os.environ))
    assert (done.returncode, done.stderr) == (130, b"transduce: interrupted\n")
