"""What the records say about the running code, installed or not, in a repository or not."""

from importlib import metadata

import pytest

from transduce.monitoring import software


@pytest.fixture(autouse=True)
def forget():
    software._git.cache_clear()
    yield
    software._git.cache_clear()


def test_code_that_is_not_installed_can_train_all_the_same(monkeypatch):
    """A copy of the repository on another machine has no metadata."""

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert software.software()["transduce"] == "not installed"


def test_the_environment_names_the_commit_where_there_is_no_repository(monkeypatch, tmp_path):
    monkeypatch.setattr(software, "ROOT", tmp_path)
    monkeypatch.delenv(software.COMMIT_VARIABLE, raising=False)
    assert set(software.software()) == {"transduce"}
    monkeypatch.setenv(software.COMMIT_VARIABLE, "abc123")
    assert software.software()["commit"] == "abc123"


def test_uncommitted_changes_are_marked(monkeypatch):
    answers = {"rev-parse": "abc123", "status": " M transduce/config.py"}
    monkeypatch.delenv(software.COMMIT_VARIABLE, raising=False)
    monkeypatch.setattr(software, "ROOT", software.Path(__file__).parent.parent.parent)
    monkeypatch.setattr(software, "_git", lambda *words: answers[words[0]])
    expected = "abc123+" if (software.ROOT / ".git").exists() else ""
    assert software.commit() == expected
