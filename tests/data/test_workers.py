"""Work over several processes."""

import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from transduce.data import workers
from transduce.data.workers import progress, spread, worker_pool
from transduce.errors import ConfigError, DataError


def double(number):
    return 2 * number


def fail(number):
    raise DataError(f"number {number} is bad")


def die(number):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("workers", [1, 2])
def test_every_task_is_done_once(workers):
    assert sorted(spread(double, range(10), workers)) == list(range(0, 20, 2))
    assert list(spread(double, [], workers)) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_mistake_found_by_a_worker_is_told(workers):
    with pytest.raises(DataError, match="is bad"):
        list(spread(fail, range(3), workers))


def test_a_killed_worker_is_one_line():
    with pytest.raises(
        DataError, match="a worker process was killed, most likely for lack of memory"
    ):
        list(spread(die, range(3), 2))


@pytest.mark.parametrize("tasks", [1, 3])
def test_fewer_than_no_processes_are_refused(tasks):
    with pytest.raises(ConfigError, match="the number of processes is -2; expected at least 1"):
        list(spread(double, range(tasks), -2))
    with pytest.raises(ConfigError, match="the number of processes is -2; expected at least 1"):
        worker_pool(-2).__enter__()


def test_a_script_without_a_main_guard_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from transduce.data.workers import spread\nlist(spread(abs, range(3), 2))\n")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment)
    # On a busy machine, the library's own warning about semaphores may follow.
    assert "if __name__ == '__main__'" in done.stderr


def test_a_script_may_come_through_standard_input():
    script = "from transduce.data.workers import spread\nprint(sorted(spread(abs, [-1, 2], 2)))\n"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-"]
    done = subprocess.run(command, input=script, capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("[1, 2]\n", "")


def test_an_interrupt_while_workers_start_is_the_parents_alone(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("""
import signal, time
from transduce.data.workers import spread
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background has it ignored
    print("started", flush=True)
    try:
        list(spread(abs, range(3), 2))
    except KeyboardInterrupt:
        print("stopped")
else:
    time.sleep(1)
""")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    run = functools.partial(subprocess.Popen, text=True, env=environment, start_new_session=True)
    with run([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == "started\n"
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate() == ("stopped\n", "")


def write_own_number(folder):
    (folder / str(os.getpid())).touch()
    time.sleep(60)


def test_no_worker_outlives_a_killed_parent(tmp_path):
    program = (
        "from pathlib import Path; from tests.data.test_workers import *\n"
        f"if __name__ == '__main__': list(spread(write_own_number, [Path({str(tmp_path)!r})] * 2, 2))"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as parent:
        _await_workers(parent, tmp_path)
        parent.kill()
    _await_their_end(tmp_path)


def test_an_interrupt_ends_workers_in_the_middle_of_their_tasks(tmp_path):
    program = (
        "import signal; from pathlib import Path; from tests.data.test_workers import *\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"    try: list(spread(write_own_number, [Path({str(tmp_path)!r})] * 2, 2))\n"
        "    except KeyboardInterrupt: print('stopped')\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], **PIPES) as parent:
        _await_workers(parent, tmp_path)
        os.killpg(parent.pid, signal.SIGINT)
        assert parent.communicate(timeout=30) == ("stopped\n", "")
    _await_their_end(tmp_path)


PIPES = {
    "stdout": subprocess.PIPE,
    "stderr": subprocess.PIPE,
    "text": True,
    "start_new_session": True,
}


def _await_workers(parent, folder):
    while len(list(folder.iterdir())) < 2:
        assert parent.poll() is None
        time.sleep(0.01)


def _await_their_end(folder):
    deadline = time.monotonic() + 30
    while any(_lives(int(path.name)) for path in folder.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _lives(number):
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes() != b""  # empty once it has ended
    except FileNotFoundError:
        return False


def test_without_a_terminal_progress_is_lines(capsys, monkeypatch):
    monkeypatch.setattr(workers, "_SECONDS", -1)
    with progress("tokenizing", 3000) as advance:
        advance(1000)
        advance(500)
    assert capsys.readouterr().err.splitlines() == [
        "tokenizing: 1,000 of 3,000",
        "tokenizing: 1,500 of 3,000",
    ]
