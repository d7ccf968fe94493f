"""`make mutate`: its faults fit the code, and its result is right."""

import pytest

from tests import mutate

FAULTS = mutate.read_faults()


def test_every_fault_fits_its_file_and_names_a_test():
    for fault in FAULTS:
        compile(
            fault.planted((mutate.ROOT / fault.file).read_text(encoding="utf-8")),
            fault.name,
            "exec",
        )
        path, _, test = fault.test.partition("::")
        assert f"def {test}(" in (mutate.ROOT / path).read_text(encoding="utf-8"), fault.name
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 30


@pytest.mark.parametrize("text", ["if mask:\n    pass", "mask = 1\nmask = 2"])
def test_a_fault_that_no_longer_fits_is_an_error(text):
    with pytest.raises(
        SystemExit, match=r"mask ignored: found [02] times in model.py, expected once"
    ):
        mutate.Fault("mask ignored", "model.py", "", "mask =", "").planted(text)


@pytest.mark.parametrize(
    ("first_failure", "status", "message"),
    [
        (lambda test, fault=None: fault and test, 0, "3 of 3 faults caught"),
        (
            lambda test, fault=None: fault and "encoder" not in fault.name and test,
            1,
            "survived: encoder is causal",
        ),
        (lambda test, fault=None: test, 1, "fail without any fault"),
    ],
    ids=["caught", "survivor", "broken without"],
)
def test_a_survivor_fails_the_run(first_failure, status, message, monkeypatch, capsys):
    monkeypatch.setattr(mutate, "first_failure", first_failure)
    assert mutate.main("causal") == status
    assert message in capsys.readouterr().out
