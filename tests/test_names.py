"""No public name is defined twice, and no two files have the same name."""

import ast
from collections import defaultdict
from pathlib import Path

import kermit

SOURCE = Path(kermit.__file__).parent
VERBS = {"augment", "distill", "embed", "evaluate", "finetune", "serve", "submit", "trace", "train"}
"""Commands, whose files have the same names."""
CONVENTIONS = {"logger"}
OF_EVERY_PACKAGE = {"__init__", "__main__", "settings"}
"""File names with the same meaning in every package."""
KNOWN = {"Layout", "NOTHING", "STYLE", "rounds"}
"""Names that are still defined twice."""


def defined(tree: ast.Module) -> set[str]:
    """The names that a module defines at its top level."""
    names: set[str] = set()
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names


def test_no_public_name_is_defined_twice() -> None:
    homes = defaultdict(set)
    for file in SOURCE.rglob("*.py"):
        for name in defined(ast.parse(file.read_text(encoding="utf-8"))):
            if not name.startswith("_") and not (name in VERBS and file.parent.name == "cli"):
                homes[name].add(str(file.relative_to(SOURCE)))
    twice = {name: sorted(files) for name, files in homes.items() if len(files) > 1 and name not in CONVENTIONS}
    assert {name: files for name, files in twice.items() if name not in KNOWN} == {}


def test_no_two_files_have_the_same_name() -> None:
    homes = defaultdict(list)
    for file in SOURCE.rglob("*.py"):
        if not (file.stem in VERBS and file.parent.name == "cli"):
            homes[file.stem].append(str(file.relative_to(SOURCE)))
    twice = {stem: sorted(files) for stem, files in homes.items() if len(files) > 1 and stem not in OF_EVERY_PACKAGE}
    assert {stem: files for stem, files in twice.items() if stem not in KNOWN} == {}


def test_no_file_has_a_meaningless_name() -> None:
    nothing = {"utils", "util", "helpers", "common", "misc"}
    assert [file for file in SOURCE.rglob("*.py") if file.stem in nothing] == []
