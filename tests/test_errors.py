"""The command that installs what is missing works from where transduce was installed."""

import importlib.metadata
import json
from types import SimpleNamespace

import pytest

from transduce.errors import MissingExtra, install_command, require


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'transduce[serve]'"),
        ({"url": "https://example.org/t.whl"}, "pip install 'transduce[serve]'"),
        (
            {"url": "file:///my%20code/transduce", "dir_info": {"editable": True}},
            "pip install -e '/my code/transduce[serve]'",
        ),
        ({"url": "file:///code", "dir_info": {}}, "pip install '/code[serve]'"),
        (
            {"url": "file:///w/transduce-1-py3-none-any.whl", "archive_info": {}},
            "pip install '/w/transduce-1-py3-none-any.whl[serve]'",
        ),
    ],
)
def test_a_missing_package_is_installed_from_where_transduce_came(monkeypatch, origin, command):
    written = None if origin is None else json.dumps(origin)
    installed = SimpleNamespace(read_text=lambda name: written)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: installed)
    assert install_command("serve") == command
    with pytest.raises(MissingExtra, match="nonesuch is not installed; install it with: pip inst"):
        require("nonesuch", "serve")


def test_in_the_folder_of_the_clone_the_command_is_short(monkeypatch, tmp_path):
    origin = json.dumps({"url": tmp_path.as_uri(), "dir_info": {"editable": True}})
    installed = SimpleNamespace(read_text=lambda name: origin)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: installed)
    monkeypatch.chdir(tmp_path)
    assert install_command("serve") == "pip install -e '.[serve]'"
