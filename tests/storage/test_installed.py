"""Which bundle a name, a folder or nothing stands for."""

import os
from pathlib import Path

import pytest

from transduce.errors import BundleError
from transduce.storage import installed
from transduce.storage.installed import default_bundles, find_bundle, installed_bundles


@pytest.fixture
def save(tmp_path, monkeypatch):
    """Make folders that look like bundles, in an empty folder with an empty package."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(installed, "PACKAGED", tmp_path / "package")

    def save(path, written_at=0):
        manifest = tmp_path / path / "MANIFEST.json"
        manifest.parent.mkdir(parents=True)
        manifest.touch()
        os.utime(manifest, (0, written_at))
        return manifest.parent

    return save


def test_without_a_name_it_is_that_of_the_package_or_else_the_newest_of_the_runs(save):
    message = r"no model found in the package nor in \./runs; name the folder .*--model FOLDER, transduce serve"
    with pytest.raises(BundleError, match=message):
        find_bundle()
    for age, path in enumerate(["runs/a/last", "runs/a/best", "runs/b/last", "runs/c/best"]):
        save(path, 1000 - age)
    # The last bundle of a run does not count if there is a best one.
    assert find_bundle() == Path("runs/a/best")
    os.utime("runs/b/last/MANIFEST.json", (0, 2000))
    assert find_bundle() == Path("runs/b/last")
    assert default_bundles() == [Path("runs/b/last")]

    first = save("package/de-en")
    assert find_bundle() == first
    assert default_bundles() == [first]
    second = save("package/en-de")
    assert find_bundle() == second
    assert default_bundles() == [second, first]


def test_the_list_begins_with_the_default(save):
    for path in ("package/de-en", "package/en-de", "package/en-fr"):
        save(path)
    save("runs/old/best", 1)
    save("runs/new/last", 2)
    Path("package/unfinished").mkdir()
    found = installed_bundles()
    assert [bundle.name for bundle in found] == ["en-de", "de-en", "en-fr", "runs/new", "runs/old"]
    assert [bundle.is_packaged for bundle in found] == [True, True, True, False, False]
    for bundle in found:
        assert find_bundle(bundle.name) == bundle.path
    assert found[0].path == find_bundle()


def test_the_run_of_a_distilled_student_is_one_of_the_runs(save):
    """Its folder is that of `transduce distil`, beside the text of the teacher."""
    save("runs/old/best", 1)
    save("runs/teacher/best", 3)
    save("runs/small/run/best", 2)
    assert [bundle.name for bundle in installed_bundles()] == [
        "runs/teacher",
        "runs/small/run",
        "runs/old",
    ]
    student = Path("runs/small/run/best")
    assert find_bundle("runs/small/run") == student
    os.utime(student / "MANIFEST.json", (0, 4))
    assert find_bundle() == student


def test_a_run_that_may_not_be_looked_into_is_passed_over(save, tmp_path):
    save("runs/a/best")
    # The operating system refuses to say what is there, as with a run of another user.
    (tmp_path / "runs/private").symlink_to("x" * 300)
    (tmp_path / "runs/file").touch()
    (tmp_path / "runs/begun/run/checkpoints").mkdir(parents=True)
    for folder in ("student", "loop"):
        (tmp_path / "runs" / folder).mkdir()
    (tmp_path / "runs/student/run").symlink_to("x" * 300)
    (tmp_path / "runs/loop/run").symlink_to("run")
    assert [bundle.name for bundle in installed_bundles()] == ["runs/a"]


def test_a_folder_comes_before_a_name_of_the_package(save):
    packaged = save("package/en-de")
    assert find_bundle("en-de") == packaged
    assert find_bundle("package/../en-de") == Path("package/../en-de")
    assert find_bundle("../package/en-de") == Path("../package/en-de")
    Path("en-de").mkdir()  # such as a folder with a recipe
    with pytest.raises(BundleError, match="the folder en-de has no model, and hides the model of"):
        find_bundle("en-de")
    assert find_bundle("package/en-de") == Path("package/en-de")
    assert find_bundle("package/en-de/") != save("en-de/best")
    assert find_bundle("en-de") == Path("en-de/best")


def test_a_run_stands_for_its_best_bundle(save, tmp_path):
    best = save("run/best")
    save("run/last")
    assert find_bundle(tmp_path / "run") == best
    assert find_bundle(best) == best
    (tmp_path / "begun/checkpoints").mkdir(parents=True)
    with pytest.raises(
        BundleError,
        match=r"begun has no saved model yet; the first one is written at the first validation",
    ):
        find_bundle(tmp_path / "begun")
    assert find_bundle(tmp_path / "absent") == tmp_path / "absent"  # which load_bundle then refuses


def test_a_bundle_is_found_between_the_renames_of_its_replacement(save):
    path = save("run/best")
    path.rename(path.with_name(".best.replaced"))
    assert find_bundle("run") == Path("run/best")
