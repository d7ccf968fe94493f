"""A folder is complete and verified, or absent; every kind of damage is one clear line."""

import os
import pickle
import random
import resource
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from tests.fault_injection import FillingDisk, listing, rewrite_manifest
from transduce.errors import CheckpointError
from transduce.storage import sealed_folder, tensors
from transduce.storage.sealed_folder import (
    MANIFEST,
    Kind,
    current_folder,
    tidy,
    verify_folder,
    write_folder,
)
from transduce.storage.tensors import file_chunks, file_size

KIND = Kind(name="sample", version=3, error=CheckpointError, remedy="make another")
FILES = {"a.json": b'{"one": 1}', "b.safetensors": {"x": torch.arange(1000.0)}, "empty": b""}


@pytest.fixture
def sample(tmp_path):
    return write_folder(tmp_path / "sample", KIND, FILES)


def test_every_type_of_tensor_is_read_back_by_the_library(tmp_path):
    torch.manual_seed(0)
    floats = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
    whole = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
    wanted = {f"float{n}": torch.randn(3, 5).to(dtype) for n, dtype in enumerate(floats)}
    wanted |= {f"whole{n}": torch.randint(0, 2, (7,)).to(dtype) for n, dtype in enumerate(whole)}
    wanted |= {
        "scalar": torch.tensor(2.5),
        "none": torch.zeros(0, 4),
        "turned": torch.randn(4, 6).t(),
        "spread": torch.randn(9)[::2],
    }
    wanted |= {"with gradient": torch.randn(2, requires_grad=True), 'ä "quoted"': torch.randn(1)}
    content = b"".join(bytes(chunk) for chunk in file_chunks(wanted))
    assert len(content) == file_size(wanted)
    (tmp_path / "file").write_bytes(content)
    found = load_file(tmp_path / "file")
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor.detach()), name
        raw = bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist())
        # Aligned.
        assert (
            content.index(raw, 8 + int.from_bytes(content[:8], "little")) % tensor.element_size()
            == 0
        )


def test_a_large_tensor_comes_in_chunks(monkeypatch):
    monkeypatch.setattr(tensors, "CHUNK", 256)
    chunks = [bytes(chunk) for chunk in file_chunks({"x": torch.arange(1000.0)})]
    assert max(map(len, chunks)) == 256
    assert b"".join(chunks).endswith(torch.arange(1000.0).numpy().tobytes())


def test_what_is_written_verifies(sample):
    assert list(verify_folder(sample, KIND)) == list(FILES)
    assert listing(sample.parent) == ["sample"]
    assert (sample / "a.json").read_bytes() == FILES["a.json"]


def test_a_folder_is_never_overwritten(sample):
    with pytest.raises(CheckpointError, match="exists already and is never overwritten"):
        write_folder(sample, KIND, {"other": b""})
    foreign = sample.parent / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("mine")
    # Nor made way for, unless it is one of ours.
    with pytest.raises(CheckpointError, match="exists already"):
        write_folder(foreign, KIND, FILES, replace=True)
    assert (foreign / "thesis.txt").read_text() == "mine"


def test_a_replaced_folder_is_gone(sample):
    write_folder(sample, KIND, {"other": b"new"}, replace=True)
    assert listing(sample) == [MANIFEST, "other"]
    assert listing(sample.parent) == ["sample"]


@pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="needs /proc to name a handle's file"
)
def test_everything_is_on_the_disk_before_its_name_is(tmp_path, monkeypatch):
    """Against a power cut: contents, then the folder's entries, then the rename, then the rename's own entry."""
    log = []

    def fsync(handle, real=os.fsync):
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        log.append(("sync", path.name, os.fstat(handle).st_size if path.is_file() else None))
        real(handle)

    def rename(old, new, real=os.rename):
        log.append(("rename", new.name, None))
        real(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    path = write_folder(tmp_path / "sample", KIND, FILES)
    draft = next(name for _, name, _ in log if name.startswith(".sample.writing"))
    files = [("sync", name, (path / name).stat().st_size) for name in (*FILES, MANIFEST)]
    assert log == [
        *files,
        ("sync", draft, None),
        ("rename", "sample", None),
        ("sync", tmp_path.name, None),
    ]


def replace_by_pipe(path):
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda path: (path / "a.json").unlink(), "a.json is missing; make another"),
        (lambda path: replace_by_pipe(path / "a.json"), "a.json is missing; make another"),
        (
            lambda path: (path / "a.json").write_bytes(b"{"),
            "a.json has 1 bytes; expected 10: make another",
        ),
        (
            lambda path: (path / "a.json").write_bytes(b'{"one": 2}'),
            "a.json is damaged: its SHA-256",
        ),
        (
            lambda path: (path / MANIFEST).unlink(),
            "sample is not a sample: it holds no MANIFEST.json; make another",
        ),
        (lambda path: (path / MANIFEST).write_bytes(b"\xff"), "MANIFEST.json is damaged"),
        (lambda path: (path / MANIFEST).write_text("[1]"), "MANIFEST.json is damaged"),
        (lambda path: (path / MANIFEST).write_text("[" * 100_000), "MANIFEST.json is damaged"),
        (
            lambda path: rewrite_manifest(path, format=4),
            "has sample format 4, but this transduce reads formats up to 3",
        ),
        (lambda path: rewrite_manifest(path, format="new"), "MANIFEST.json is damaged"),
        (lambda path: rewrite_manifest(path, kind="pear"), "is a pear; expected a sample"),
        (
            lambda path: rewrite_manifest(path, files={"../x": {"bytes": 1, "sha256": ""}}),
            "names no file ../x",
        ),
        (
            lambda path: path.rename(path.with_name("moved")),
            "sample does not exist; expected a sample",
        ),
    ],
)
def test_damage_is_one_clear_line(sample, harm, message):
    harm(sample)
    with pytest.raises(CheckpointError) as caught:
        verify_folder(sample, KIND)
    assert message in str(caught.value)
    assert str(sample) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("stride", [17, pytest.param(1, marks=pytest.mark.battery)])
def test_a_flipped_bit_in_the_manifest_is_no_newer_format(sample, stride):
    whole = (sample / MANIFEST).read_bytes()
    for bit in range(0, 8 * len(whole), stride):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        (sample / MANIFEST).write_bytes(flipped)
        with pytest.raises(CheckpointError, match=r"MANIFEST\.json is damaged"):
            verify_folder(sample, KIND)


class Poison:
    def __reduce__(self):
        return os.system, ("touch poisoned",)


opened: list[str] | None = None


def record_opened(event, arguments):
    if event == "open" and opened is not None:
        opened.append(str(arguments[0]))


def test_a_poisoned_pickle_is_never_opened(sample, monkeypatch):
    monkeypatch.chdir(sample)
    for name in ("model.pt", "pytorch_model.bin", "data.pkl", "a.pkl"):
        Path(name).write_bytes(pickle.dumps(Poison()))
    sys.addaudithook(record_opened)
    monkeypatch.setattr(sys.modules[__name__], "opened", [])
    verify_folder(sample, KIND)
    names = {Path(path).name for path in opened}
    assert names == {*FILES, MANIFEST}
    assert not Path("poisoned").exists()


def test_leftovers_are_tidied_and_others_folders_are_not(sample):
    parent = sample.parent
    for name in (".sample.writing-1", ".sample.deleting-2", ".other.writing-3", ".git", "step-1"):
        (parent / name).mkdir()
    tidy(parent, "sample")
    assert listing(parent) == [".git", ".other.writing-3", "sample", "step-1"]
    tidy(parent)
    assert listing(parent) == [".git", "sample", "step-1"]


def test_a_replacement_killed_between_its_renames_is_undone(sample):
    aside = sample.with_name(".sample.replaced")
    sample.rename(aside)
    assert current_folder(sample) == aside
    verify_folder(current_folder(sample), KIND)
    tidy(sample.parent, "sample")
    assert current_folder(sample) == sample
    assert listing(sample.parent) == ["sample"]


def test_the_current_folder_of_a_shell_has_a_name(sample, monkeypatch):
    (sample / "below").mkdir()
    for place, path in ((sample, "."), (sample / "below", "..")):
        monkeypatch.chdir(place)
        assert current_folder(Path(path)) == sample
    assert current_folder(Path("/")) == Path("/")


def test_a_folder_whose_replacement_was_killed_is_not_overwritten(sample):
    sample.rename(sample.with_name(".sample.replaced"))
    with pytest.raises(CheckpointError, match="exists already and is never overwritten"):
        write_folder(sample, KIND, {"a.json": b"other"})
    assert (sample / "a.json").read_bytes() == FILES["a.json"]


@pytest.mark.parametrize("replace", [False, True])
def test_a_disk_that_fills_up_half_way_leaves_no_litter(sample, monkeypatch, replace):
    monkeypatch.setattr(sealed_folder, "open", FillingDisk(2000), raising=False)
    path = sample if replace else sample.with_name("next")
    with pytest.raises(CheckpointError) as caught:
        write_folder(path, KIND, FILES, replace=replace)
    needed = sealed_folder.SPARE + 10 + file_size(FILES["b.safetensors"])
    assert (
        f"{path} does not fit on the disk (No space left on device): it needs {needed:,} bytes"
        in str(caught.value)
    )
    assert listing(sample.parent) == ["sample"]
    verify_folder(sample, KIND)


def test_too_little_room_is_seen_before_anything_is_written(sample, monkeypatch):
    monkeypatch.setattr(sealed_folder, "_write", lambda *_: pytest.fail("written"))
    monkeypatch.setattr(sealed_folder.shutil, "disk_usage", lambda _: SimpleNamespace(free=7))
    with pytest.raises(CheckpointError, match=r"it needs [\d,]+ bytes and 7 are free"):
        write_folder(sample.with_name("next"), KIND, FILES)
    assert listing(sample.parent) == ["sample"]


def test_a_place_that_cannot_be_written_is_one_clear_line(sample):
    inside_a_file = sample / "a.json" / "next"
    with pytest.raises(CheckpointError, match=r"next cannot be written \(File exists: .*a\.json\)"):
        write_folder(inside_a_file, KIND, FILES)


def test_a_place_that_cannot_be_looked_into_is_one_clear_line(tmp_path):
    """As with a home folder of another user, the operating system refuses to say what is there."""
    with pytest.raises(CheckpointError, match=r"x{300}"):
        verify_folder(tmp_path / ("x" * 300), KIND)


def test_truncation_anywhere_is_noticed(sample):
    random.seed(0)
    for name in ("a.json", "b.safetensors", MANIFEST):
        whole = (sample / name).read_bytes()
        for length in random.sample(range(len(whole)), 10):
            (sample / name).write_bytes(whole[:length])
            with pytest.raises(CheckpointError, match=name):
                verify_folder(sample, KIND)
        (sample / name).write_bytes(whole)
    verify_folder(sample, KIND)


def test_a_limit_on_the_size_of_files_is_not_told_as_a_full_disk(tmp_path):
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, usual[1]))
    try:
        with pytest.raises(
            CheckpointError, match=r"big cannot be written \(the file size limit is reached"
        ):
            write_folder(tmp_path / "big", KIND, {"a.json": b"x" * 10_000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert not (tmp_path / "big").exists()
