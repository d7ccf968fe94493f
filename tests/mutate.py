"""Plant the faults of `tests/faults/`, one at a time, in a copy of the package, and run the test of each.

Every fault must make its test fail; one that survives shows a hole in the suite. `python tests/mutate.py cache` plants
only the faults that have "cache" in their name.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from shutil import copy, copytree, ignore_patterns
from tempfile import TemporaryDirectory

import pytest

ROOT = Path(__file__).parent.parent
AT_A_TIME = 2
# A fault takes a second and not five: its process is forked from one that has imported this, and has no plugins.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["pytest", "torch", "torch.distributed.fsdp", "transformers"])
OPTIONS = ["-x", "--assert=plain", "--disable-plugin-autoload", "-p", "no:cacheprovider"]


@dataclass(frozen=True)
class Fault:
    """In a file, `old` becomes `new`, and a test should fail."""

    name: str
    file: str
    test: str
    old: str
    new: str

    def planted(self, source: str) -> str:
        """The file's text with the fault. `old` must be in it exactly once; line breaks do not count."""
        found = list(_ignoring_line_breaks(self.old).finditer(source))
        if len(found) != 1:
            message = f"{self.name}: found {len(found)} times in {self.file}, expected once"
            raise SystemExit(f"tests/faults: {message}; quote the code as it is now")
        return source[: found[0].start()] + self.new + source[found[0].end() :]


def _ignoring_line_breaks(quoted: str) -> re.Pattern[str]:
    """Match a quoted piece of code, however a formatter breaks its lines."""
    indent, pieces = re.match(r"\s*", quoted)[0], re.findall(r"\w+|[^\w\s]", quoted)
    pattern = "".join(
        (r"\s*,?\s*" if piece in ")]}" else r"\s*" if index else "") + re.escape(piece)
        for index, piece in enumerate(pieces)
    )
    return re.compile(indent + pattern)


def read_faults() -> list[Fault]:
    """All faults of `tests/faults/`, which has one file per room."""
    files = sorted((ROOT / "tests/faults").glob("*.diff"))
    return [fault for file in files for fault in parse_faults(file.read_text("utf-8"))]


def parse_faults(text: str) -> list[Fault]:
    """Lines `--- file`, `@@ name @@ test`, then the old text after `-` and the new text after `+`."""
    faults = []
    for part in f"\n{text}".split("\n--- ")[1:]:
        file, *entries = part.split("\n@@ ")
        for entry in entries:
            title, *lines = entry.splitlines()
            name, _, test = title.partition(" @@ ")
            old, new = (
                "\n".join(line[1:] for line in lines if line.startswith(sign)) for sign in "-+"
            )
            faults.append(Fault(name, f"transduce/{file.strip()}", f"tests/{test}", old, new))
    return faults


class FirstFailure:
    """A pytest plugin that remembers which test failed."""

    test = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.test = self.test or report.nodeid.removeprefix("tests/")


def run_test(answer: Connection, test: str, fault: Fault | None) -> None:
    """Run a test on a copy of the package with this fault; answer with the first that fails, or nothing if all pass."""
    seen, output = FirstFailure(), io.StringIO()
    with (
        TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        contextlib.redirect_stdout(output),
    ):
        for name in ("transduce", "tests"):
            copytree(ROOT / name, name, ignore=ignore_patterns("__pycache__"))
        copy(ROOT / "pyproject.toml", ".")
        if fault is not None:
            Path(fault.file).write_text(
                fault.planted(Path(fault.file).read_text("utf-8")), encoding="utf-8"
            )
        status = pytest.main([*OPTIONS, test], plugins=[seen])
    if status != (pytest.ExitCode.TESTS_FAILED if seen.test else pytest.ExitCode.OK):
        raise SystemExit(output.getvalue())  # no test ran
    answer.send(seen.test)


def first_failure(test: str, fault: Fault | None = None) -> str:
    """Run `run_test` in another process."""
    result, answer = SERVER.Pipe(duplex=False)
    process = SERVER.Process(target=run_test, args=(answer, test, fault))
    process.start()
    answer.close()
    try:
        return result.recv()
    except EOFError:
        raise SystemExit(
            f"{test} cannot run with the fault: {fault.name if fault else 'none'}"
        ) from None
    finally:
        process.join()


def main(words: str = "") -> int:
    """Plant all faults that have these words in their name; 1 if one survives."""
    faults = [fault for fault in read_faults() if words in fault.name]
    if not faults:
        raise SystemExit(f"no fault of tests/faults has {words!r} in its name")
    for fault in faults:
        fault.planted((ROOT / fault.file).read_text("utf-8"))
    start, survivors = time.monotonic(), []
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        tests = list(dict.fromkeys(fault.test for fault in faults))
        if broken := [test for test in pool.map(first_failure, tests) if test]:
            print("fail without any fault:", *broken, sep="\n")
            return 1
        caught_by = pool.map(first_failure, [fault.test for fault in faults], faults)
        for fault, test in zip(faults, caught_by, strict=True):
            print(f"{fault.name:<52} {test or 'SURVIVED ' + fault.test}", flush=True)
            survivors += [] if test else [fault.name]
    print(
        f"\n{len(faults) - len(survivors)} of {len(faults)} faults caught in {time.monotonic() - start:.0f} s"
    )
    for name in survivors:
        print(f"survived: {name}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
