"""The house rules that a reader cannot see at a glance."""

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "transduce"

# A module imports only from rooms on the lines above that of its own room, or from its own room.
ORDER = [
    {"errors", "cores"},
    {"setting_checks", "setting_names"},
    {"config"},
    {"presets"},
    {"recipe", "recipe_schema"},
    {"storage"},
    {"model", "data"},
    {"storage.bundle"},  # a trained model: its weights and its tokenizer
    {"corpora"},
    {"kernels"},
    {"describe"},
    {"search"},
    {"engines"},
    {"translation"},
    {"monitoring"},
    {"evaluation"},
    {"training"},
    {"inspection", "page", "exporters", "distillation"},
    {"paper"},
    {"serving"},
    {"cli"},
    {"__main__", "__init__"},
]
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}


def room_of(module):
    """The longest name in ORDER that a module's dotted name starts with."""
    parts = module.split(".")
    names = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next(name for name in names if name in RANK)


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("transduce"):
            room = node.module.removeprefix("transduce").removeprefix(".")
            for alias in node.names:
                full = f"{room}.{alias.name}".removeprefix(".")
                yield (
                    full
                    if (PACKAGE / f"{full.replace('.', '/')}.py").exists()
                    else room or alias.name
                )
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("transduce."):
                    yield alias.name.removeprefix("transduce.")


def imported_libraries(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name.partition(".")[0] for name in names)


def test_imports_point_left():
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        room = room_of(module)
        others = {room_of(other) for other in imported_modules(path)} - {room}
        wrong += [f"{module} imports {other}" for other in others if RANK[other] >= RANK[room]]
    assert wrong == []


def test_only_the_command_line_imports_its_library():
    users = [path.name for path in PACKAGE.rglob("*.py") if "argparse" in imported_libraries(path)]
    assert users == ["arguments.py"]


def test_one_module_forces_things_to_the_disk():
    assert [
        path.name for path in PACKAGE.rglob("*.py") if "fsync" in path.read_text(encoding="utf-8")
    ] == ["disk.py"]


def test_no_module_is_about_nothing():
    assert not [
        path
        for path in PACKAGE.rglob("*.py")
        if path.stem in {"utils", "helpers", "common", "misc"}
    ]


PICKLES = (
    r"pickle\b|\bshelve\b|\bjoblib\b|\btorch\.(load|save)$|distributed\.checkpoint(?!\.state_dict)"
)


def test_nothing_is_ever_pickled():
    """A file that someone hands over can run no code: no pickle, torch.load or checkpoint files of torch."""
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = (
                ast.unparse(node)
                if isinstance(node, ast.Import | ast.ImportFrom | ast.Attribute)
                else ""
            )
            if re.search(PICKLES, text):
                wrong.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {text}")
    assert wrong == []


def test_the_architecture_page_names_every_module_once_with_its_purpose():
    page = (PACKAGE.parent / "docs/architecture.md").read_text(encoding="utf-8")
    rooms = page.partition("## Rooms")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `([\w/]+)` \| (.+) \|$", rooms, flags=re.MULTILINE)
    modules = []
    for path in PACKAGE.rglob("*.py"):
        if path.name != "__init__.py":
            docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
            name = path.relative_to(PACKAGE).with_suffix("").as_posix()
            modules.append((name, docstring.partition("\n")[0]))
    assert sorted(listed) == sorted(modules)


def test_the_flows_and_the_glossary_name_modules_that_exist():
    page = (PACKAGE.parent / "docs/architecture.md").read_text(encoding="utf-8")
    rooms = {path.name for path in PACKAGE.iterdir()}
    named = re.findall(r"\b([a-z_]+(?:/[a-z_0-9]+)+)\b", page)
    missing = [
        name
        for name in named
        if name.split("/")[0] in rooms
        and not (PACKAGE / f"{name}.py").exists()
        and not (PACKAGE / name).exists()
    ]
    assert missing == []


COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def test_no_comprehension_is_inside_another():
    nested = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, COMPREHENSIONS):
                inside = [part for part in ast.walk(node) if isinstance(part, COMPREHENSIONS)]
                if len(inside) > 1:
                    nested.append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert nested == []
