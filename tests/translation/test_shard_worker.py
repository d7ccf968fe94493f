"""A worker of a cluster: what it refuses, and how it says so."""

import platform
from dataclasses import asdict, replace

import pytest

from transduce.config import SearchConfig
from transduce.storage.bundle import load_bundle
from transduce.translation.shard_worker import ATTEMPTS, Job, Model, ShardWorker
from transduce.translation.shards import cut
from transduce.translation.streams import Format


@pytest.fixture
def job(bundle, tmp_path):
    source = tmp_path / "text.en"
    source.write_text("in 98 weeks\n" + "one, " * 300 + "\n")
    folder = tmp_path / "text.de.partial"
    folder.mkdir()
    search = SearchConfig(beam_size=1)
    model = Model((bundle.path,), (bundle.fingerprint,), search, "torch", "cpu", "auto")
    return Job(model, Format(), source, source, folder)


def translate(job):
    """What a worker returns for the only shard of the text."""
    (shard,) = cut(job.source, job.form)
    return ShardWorker(job)(asdict(shard))


def test_a_worker_writes_the_shard_and_returns_the_notices(job):
    result = translate(job)
    assert (result["lines"], result["mistake"]) == (2, "")
    assert result["notices"].startswith('line 2: the sentence "one, one,')
    assert (job.folder / "0000000.txt").read_bytes().count(b"\n") == 2


def test_a_shard_that_is_there_is_not_translated_again(job):
    (job.folder / "0000000.txt").write_text("eins\nzwei\n")
    model = replace(job.model, bundles=(job.folder / "nowhere",))
    assert translate(replace(job, model=model))["mistake"] == ""
    assert (job.folder / "0000000.txt").read_text() == "eins\nzwei\n"


def test_a_mistake_is_returned_with_the_name_of_the_machine(job):
    model = replace(job.model, bundles=(job.folder / "nowhere",))
    mistake = translate(replace(job, model=model))["mistake"]
    assert "nowhere" in mistake
    assert mistake.endswith(f" (on the machine {platform.node()})")


def test_a_machine_with_another_model_is_refused(job, bundle):
    assert load_bundle(bundle.path).fingerprint == bundle.fingerprint
    model = replace(job.model, fingerprints=("0" * 64,))
    assert "is another model than on the machine" in translate(replace(job, model=model))["mistake"]
    assert not (job.folder / "0000000.txt").exists()


def test_a_machine_that_does_not_share_the_folder_is_refused(job, tmp_path):
    apart = replace(job, folder=tmp_path / "apart")
    assert (
        "apart does not exist; the input, the output and the model" in translate(apart)["mistake"]
    )
    assert not (tmp_path / "apart").exists()


def test_a_shard_that_ends_its_workers_is_given_up(job, monkeypatch):
    def die(model):
        raise SystemExit

    monkeypatch.setattr(Model, "load", die)
    for _ in range(ATTEMPTS):
        with pytest.raises(SystemExit):
            translate(job)
    mistake = translate(job)["mistake"]
    assert f"{ATTEMPTS} workers died while they translated the lines 1 to 2 of" in mistake
