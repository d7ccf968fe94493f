"""The house rules that a reader cannot see at a glance."""

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "transduce"

# A module imports only what stands on a line above its own (or its own room).
ORDER = [
    {"errors"},
    {"disk"},
    {"config"},
    {"presets"},
    {"recipe"},
    {"tensors"},
    {"folder"},
    {"model", "data"},
    {"kernels"},
    {"describe"},
    {"bundle", "checkpoint"},
    {"search"},
    {"engines"},
    {"decoding"},
    {"evaluation"},
    {"training"},
    {"paper", "inspection", "serving", "exporters"},
    {"program"},
    {"cli"},
    {"__main__", "__init__"},
]
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}


def imported_rooms(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("transduce"):
            parts = node.module.split(".")
            names = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".")[1] for alias in node.names if alias.name.startswith("transduce.")]
        else:
            continue
        yield from names


def imported_libraries(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name.partition(".")[0] for name in names)


def test_imports_point_left():
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        others = [other for other in imported_rooms(path) if other != room and RANK[other] >= RANK[room]]
        wrong += [f"{path.relative_to(PACKAGE)} imports {other}" for other in others]
    assert wrong == []


def test_only_the_command_line_imports_its_library():
    users = [path.name for path in PACKAGE.rglob("*.py") if "tyro" in imported_libraries(path)]
    assert sorted(users) == ["cli.py", "program.py"]


def test_one_module_forces_things_to_the_disk():
    assert [path.name for path in PACKAGE.rglob("*.py") if "fsync" in path.read_text(encoding="utf-8")] == ["disk.py"]


def test_no_module_is_about_nothing():
    assert not [path for path in PACKAGE.rglob("*.py") if path.stem in {"utils", "helpers", "common", "misc"}]


PICKLES = r"pickle\b|\bshelve\b|\bjoblib\b|\btorch\.(load|save)$|distributed\.checkpoint(?!\.state_dict)"


def test_nothing_is_ever_pickled():
    """A file that someone hands over can run no code: no pickle, torch.load or checkpoint files of torch."""
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = ast.unparse(node) if isinstance(node, ast.Import | ast.ImportFrom | ast.Attribute) else ""
            if re.search(
                r"pickle\b|\bshelve\b|\bjoblib\b|\btorch\.(load|save)$|distributed\.checkpoint(?!\.state_dict)", text
            ):
                wrong.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {text}")
    assert wrong == []
