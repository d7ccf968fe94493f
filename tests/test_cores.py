"""The cores of a process: those of the machine, or the share that a container allows."""

import os

import pytest

from transduce import cores
from transduce.cores import available_cores, limit_threads


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Write the files of a machine with 64 cores."""

    def write(membership, files):
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content)
        (tmp_path / "membership").write_text(membership)

    monkeypatch.setattr(cores, "CGROUPS", tmp_path)
    monkeypatch.setattr(cores, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    return write


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "100000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "250000 100000\n"}, 3),
        ("0::/\n", {"cpu.max": "10000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "9900000 100000\n"}, 64),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 64),
        ("0::/a/b\n", {"a/cpu.max": "200000 100000\n", "a/b/cpu.max": "max 100000\n"}, 2),
        ("0::/a/b\n", {"a/cpu.max": "200000 100000\n", "a/b/cpu.max": "150000 50000\n"}, 2),
        ("0::/a\n", {"b/cpu.max": "200000 100000\n"}, 64),
        (
            "5:memory:/\n4:cpu,cpuacct:/docker/1\n",
            {"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            2,
        ),
        ("4:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 64),
        ("4:cpuset:/\n", {"cpu/cpu.cfs_quota_us": "1\n", "cpu/cpu.cfs_period_us": "1\n"}, 64),
        ("0::/\n", {"cpu.max": "1 0\n"}, 64),
        ("\n", {}, 64),
        ("0::/\0\n", {}, 64),
        ("0::/\n", {}, 64),
    ],
)
def test_the_limit_of_a_container_counts(machine, monkeypatch, membership, files, expected):
    machine(membership, files)
    assert available_cores() == expected
    # Other libraries know only the cores of the machine.
    monkeypatch.delenv("OMP_NUM_THREADS")
    limit_threads()
    assert os.environ.get("OMP_NUM_THREADS") == (str(expected) if expected < 64 else None)


def test_the_number_of_threads_that_a_user_wants_stays(machine, monkeypatch):
    machine("0::/\n", {"cpu.max": "100000 100000\n"})
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    limit_threads()
    assert os.environ["OMP_NUM_THREADS"] == "2"


def test_a_system_without_control_groups_has_its_cores(machine):
    assert available_cores() == 64
