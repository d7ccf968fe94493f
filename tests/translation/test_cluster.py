"""Bulk translation with Ray: the same bytes as without it, whatever happens on the way."""

import contextlib
import errno
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from transduce.cli.commands import run
from transduce.data.readers.compression import blocks, compressed
from transduce.storage.lock import lock_work_folder
from transduce.translation import cluster, shards

ROOT = Path(__file__).parents[2]


class OneProcess:
    """What the code uses of Ray, without its processes: rows are mapped here, last first."""

    def __init__(self, gpus=0):
        self.resources = {"CPU": 2.0, "GPU": gpus} if gpus else {"CPU": 2.0}
        self.most_shards = None  # Ctrl-C after so many
        self.worked = 0
        self.is_running = False
        self.exceptions = SimpleNamespace(RayError=ArithmeticError)
        context = SimpleNamespace()
        self.data = SimpleNamespace(
            DataContext=SimpleNamespace(get_current=lambda: context),
            ActorPoolStrategy=dict,
            from_items=self._from_items,
        )

    def init(self, address, **options):
        if address == "auto":
            raise ConnectionError("Could not find any running Ray instance.\nMore.")
        self.is_running = True

    def shutdown(self):
        self.is_running = False

    def cluster_resources(self):
        return self.resources

    def _from_items(self, rows, override_num_blocks):
        return SimpleNamespace(map=lambda worker, **options: self._map(rows, worker, options))

    def _map(self, rows, worker, options):
        assert options["compute"]["size"] <= len(rows)
        call = worker(*options["fn_constructor_args"])
        return SimpleNamespace(iter_rows=lambda: self._iter_rows(rows, call))

    def _iter_rows(self, rows, call):
        for row in reversed(rows):
            if self.worked == self.most_shards:
                raise KeyboardInterrupt
            self.worked += 1
            yield call(row)


@pytest.fixture
def ray(monkeypatch):
    ray = OneProcess()
    monkeypatch.setattr(cluster, "import_ray", lambda: ray)
    monkeypatch.setattr(shards, "LINES", 10)
    return ray


@pytest.fixture
def translate(bundle, monkeypatch, capsys):
    """Run the command: exit status and messages."""

    def command(*arguments):
        options = ["--model", bundle.path, "--engine", "torch", "--beam", "1"]
        status = run(["translate", *map(str, [*options, *arguments])])
        return status, capsys.readouterr().err

    return command


@pytest.fixture
def text(sentences, tmp_path):
    """A text of 44 lines, in three shards."""
    short = sorted(sentences, key=len)
    path = tmp_path / "text.en"
    path.write_text("\n".join([*short[:40], "", "  ", "a\tb", short[40]]))
    return path


CASES = {
    "plain": [],
    "column": ["--column", "2"],
    "json": ["--scores"],
    "replace": ["--errors", "replace"],
    "windows": [],
}


@pytest.mark.parametrize("case", CASES)
def test_the_output_is_that_of_one_process(translate, ray, text, case, tmp_path):
    if case == "replace":
        text.write_bytes(text.read_bytes().replace(b"a\tb", b"a\xffb"))
    if case == "windows":
        text.write_bytes(text.read_text().replace("\n", "\r\n").encode("utf-16"))
    plain, spread = tmp_path / "plain.de", tmp_path / "spread.de"
    assert translate(*CASES[case], "--input", text, "--output", plain)[0] == 0
    status, messages = translate(*CASES[case], "--on", "ray", "--input", text, "--output", spread)
    assert status == 0
    assert spread.read_bytes() == plain.read_bytes()
    assert ray.worked == 3
    assert ("has 1 column separated by tabs" in messages) == (case == "column")
    assert not (tmp_path / "spread.de.partial").exists()
    assert not ray.is_running


def test_files_are_compressed_as_their_names_say(translate, ray, text, tmp_path):
    with (tmp_path / "text.en.gz").open("wb") as file, compressed(file, Path("x.gz")) as out:
        out.write(text.read_bytes())
    assert translate("--input", text, "--output", tmp_path / "plain.de")[0] == 0
    packed = tmp_path / "spread.de.xz"
    files = ["--input", tmp_path / "text.en.gz", "--output", packed]
    assert translate("--on", "ray", *files)[0] == 0
    assert b"".join(blocks(packed)) == (tmp_path / "plain.de").read_bytes()


def test_an_empty_file_has_an_empty_translation(translate, ray, tmp_path):
    (tmp_path / "text.en").touch()
    files = ["--input", tmp_path / "text.en", "--output", tmp_path / "text.de"]
    assert translate("--on", "ray", *files) == (0, "")
    assert (tmp_path / "text.de").read_bytes() == b""


def test_an_interrupted_command_says_how_to_continue_and_does(translate, ray, text, tmp_path):
    assert translate("--input", text, "--output", tmp_path / "plain.de")[0] == 0
    command = ["--on", "ray", "--input", text, "--output", tmp_path / "text.de"]
    ray.most_shards = 2
    status, messages = translate(*command)
    assert status == 130
    assert messages.splitlines()[-1] == (
        "transduce: interrupted after 28 of 44 lines; run the same command again to continue"
    )
    assert not (tmp_path / "text.de").exists()

    ray.most_shards = None
    assert translate(*command)[0] == 0
    assert ray.worked == 3
    assert (tmp_path / "text.de").read_bytes() == (tmp_path / "plain.de").read_bytes()


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        (["--beam", "2"], "search"),
        (["--scores"], "format"),
        (["--precision", "bf16"], "precision"),
        (["--input", "other.en"], "text"),
    ],
)
def test_finished_shards_of_other_work_are_not_mixed_in(
    translate, ray, text, tmp_path, changes, name, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("other.en").write_text(text.read_text().replace("a\tb", "a\tc"))
    command = ["--on", "ray", "--input", text, "--output", "text.de"]
    ray.most_shards = 1
    assert translate(*command)[0] == 130
    status, messages = translate(*command, *changes)
    assert (status, messages.count("\n")) == (2, 1)
    assert f"text.de.partial was made with another {name}; choose another output" in messages


def test_a_shard_of_unknown_work_is_translated_again(translate, ray, text, tmp_path):
    """A kill may interrupt the removal of the folder after its record was removed."""
    command = ["--on", "ray", "--input", text, "--output", tmp_path / "text.de"]
    ray.most_shards = 1
    assert translate(*command)[0] == 130
    (shard,) = (tmp_path / "text.de.partial").glob("*.txt")
    shard.write_text("other\n" * shard.read_text().count("\n"))
    (tmp_path / "text.de.partial" / cluster.RECORD).unlink()
    ray.most_shards = None
    assert translate(*command)[0] == 0
    assert "other" not in (tmp_path / "text.de").read_text()


def test_work_without_a_finished_shard_can_be_changed(translate, ray, text, tmp_path):
    command = ["--on", "ray", "--input", text, "--output", tmp_path / "text.de"]
    ray.most_shards = 0
    assert translate(*command)[0] == 130
    ray.most_shards = None
    assert translate(*command, "--scores")[0] == 0


def test_two_commands_do_not_write_one_output(translate, ray, text, tmp_path):
    output = tmp_path / "text.de"
    with lock_work_folder(tmp_path / "text.de.partial", "translate"):
        status, messages = translate("--on", "ray", "--input", text, "--output", output)
    assert (status, messages.count("\n")) == (2, 1)
    assert "another transduce translate is at work in" in messages


def test_a_shared_folder_needs_no_file_locks(translate, ray, text, tmp_path, monkeypatch):
    def no_locks(*arguments):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    output = tmp_path / "text.de"
    assert translate("--on", "ray", "--input", text, "--output", output)[0] == 0


def test_a_mistake_of_a_worker_is_one_line(translate, ray, text, tmp_path):
    command = ["--on", "ray", "--input", text, "--output", tmp_path / "text.de"]
    status, messages = translate(*command, "--precision", "int8")
    assert (status, messages.count("\n")) == (2, 1)
    assert "precision is int8, which the engine torch does not have" in messages

    def fail(row):
        raise ArithmeticError("ray::Map()\n  File ...\nValueError: seven")

    ray._iter_rows = lambda rows, call: map(fail, rows)
    status, messages = translate(*command)
    assert (status, messages.count("\n")) == (2, 1)
    assert "a worker of the Ray cluster failed (ValueError: seven)" in messages
    assert not ray.is_running


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--address", "auto", "text"], "add --on ray, or leave it out"),
        (["--on", "ray", "text"], "needs --input and --output"),
        (["--on", "ray", "--input", "text.en"], "needs --input and --output"),
        (["--on", "ray", "--input", "x.docx", "--output", "y.docx"], "add --format text"),
        (["--on", "ray", "--input", "no.en", "--output", "x"], "no.en does not exist"),
        (["--on", "ray", "--input", ".", "--output", "x"], "is a folder"),
        (["--on", "ray", "--input", "text.en", "--output", "text.en"], "both the input and the"),
        (["--on", "ray", "--input", "text.en", "--output", "no/x"], "no is not a folder"),
        (["--on", "dask", "text"], "--on is 'dask'"),
    ],
)
def test_wrong_arguments_are_one_line(translate, ray, text, arguments, message, monkeypatch):
    monkeypatch.chdir(text.parent)
    status, messages = translate(*arguments)
    assert (status, messages.count("\n")) == (2, 1)
    assert message in messages
    assert [path.name for path in text.parent.iterdir()] == ["text.en"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--address", "auto"], "no Ray cluster answers at auto (Could not find any running Ray"),
        (["--address", "127.0.0.1:1"], "no Ray cluster answers at 127.0.0.1:1 ([Errno 111] Conn"),
        (["--device", "cuda"], "the Ray cluster has no GPU; use --device cpu"),
        (["--device", "cuda:1"], "Ray gives each worker a GPU of its own"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_one_line(translate, ray, text, arguments, message):
    output = text.with_name("text.de")
    status, messages = translate("--on", "ray", "--input", text, "--output", output, *arguments)
    assert (status, messages.count("\n")) == (2, 1)
    assert message in messages
    assert [path.name for path in text.parent.iterdir()] == ["text.en"]


def test_all_workers_use_the_same_kind_of_device():
    assert cluster._choose_device(None, {"CPU": 2.0}) == "cpu"
    assert cluster._choose_device(None, {"CPU": 2.0, "GPU": 1.0}) == "cuda"
    assert cluster._choose_device("cpu", {"CPU": 2.0, "GPU": 1.0}) == "cpu"


def test_the_extra_is_named_if_ray_is_missing(translate, text, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "ray.data", raising=False)
    status, messages = translate("--on", "ray", "--input", text, "--output", "x")
    assert (status, messages.count("\n")) == (2, 1)
    assert "ray is not installed; install it with: pip install" in messages
    assert "[ray]" in messages


# With Ray itself


SMALL_SHARDS = """
import sys
from transduce.cli.commands import run
from transduce.translation import shards
shards.LINES = 100
sys.exit(run(["translate", "--on", "ray", *sys.argv[1:]]))
"""


@contextlib.contextmanager
def started(*arguments):
    """Start the command in a process of its own."""
    command = [sys.executable, "-c", SMALL_SHARDS, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def finish(process):
    """Wait for the end: exit status, and messages but those about progress and single lines."""
    _, messages = process.communicate(timeout=300)
    expected = re.compile(r"translating: |was stopped at|\(raylet\)")
    lines = messages.decode().splitlines()
    return process.returncode, [line for line in lines if not expected.search(line)]


def wait_for_a_shard(folder):
    deadline = time.monotonic() + 120
    while not list(folder.glob("*.txt")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def parent_of(process):
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def workers(ancestor):
    """The processes below this one in which Ray translates."""
    below = {ancestor}
    for process in sorted(int(path.name) for path in Path("/proc").glob("[0-9]*")):
        with contextlib.suppress(OSError):
            if parent_of(process) not in below:
                continue
            below.add(process)
            if b"ShardWorker" in Path(f"/proc/{process}/cmdline").read_bytes():
                yield process


@pytest.fixture
def large(sentences, bundle, tmp_path):
    """The options of a large text and its translation in one process."""
    source = tmp_path / "large.en"
    source.write_text("".join(f"{text}\n" for text in sentences * 2))
    options = ["--model", bundle.path, "--engine", "torch", "--beam", "1", "--input", source]
    assert run(["translate", *map(str, options), "--output", str(tmp_path / "plain.de")]) == 0
    return [*options, "--output", tmp_path / "large.de"]


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_and_repeats_no_line(large, tmp_path):
    with started(*large) as process:
        wait_for_a_shard(tmp_path / "large.de.partial")
        victim = next(workers(process.pid))
        os.kill(victim, signal.SIGKILL)
        assert finish(process) == (0, [])
    assert (tmp_path / "large.de").read_bytes() == (tmp_path / "plain.de").read_bytes()


@pytest.mark.slow
def test_an_interrupted_cluster_continues_where_it_stopped(large, tmp_path):
    folder = tmp_path / "large.de.partial"
    with started(*large) as process:
        wait_for_a_shard(folder)
        process.send_signal(signal.SIGINT)
        status, messages = finish(process)
    assert status == 130
    assert messages[-1].endswith("lines; run the same command again to continue")
    finished = {path: path.stat().st_mtime_ns for path in folder.glob("*.txt")}
    assert finished

    # Even a kill of the first process leaves whole shards alone.
    with started(*large) as process:
        while set(folder.glob("*.txt")) <= set(finished):
            time.sleep(0.05)
        process.kill()
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    with started(*large) as process:
        assert finish(process)[0] == 0
    assert (tmp_path / "large.de").read_bytes() == (tmp_path / "plain.de").read_bytes()


TWO_MACHINES = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
cluster.add_node(num_cpus=1)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@pytest.mark.slow
def test_two_machines_of_a_running_cluster_share_the_work(large, tmp_path):
    command = [sys.executable, "-c", TWO_MACHINES]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    ) as machines:
        address = machines.stdout.readline().decode().strip()
        with started(*large, "--address", address) as process:
            wait_for_a_shard(tmp_path / "large.de.partial")
            raylets = set(map(parent_of, workers(machines.pid)))
            assert finish(process) == (0, [])
        machines.stdin.close()
    assert len(raylets) == 2
    assert (tmp_path / "large.de").read_bytes() == (tmp_path / "plain.de").read_bytes()
