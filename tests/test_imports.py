"""What importing loads, who may import whom, and that kernels are compiled once a machine."""

from __future__ import annotations

import ast
import graphlib
import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from cases import few
from streamsvm_cli.commands import _SUMMARIES
from warm_process import run

from streamsvm.kernels import jit
from streamsvm.losses import LOSSES

PACKAGES = ("streamsvm", "streamsvm_converters", "streamsvm_cli")
# Folders of the packages, some of which have shorter names in the repository than in an installed wheel.
FOLDERS = {name: Path(importlib.util.find_spec(name).origin).parent for name in PACKAGES}
HEAVY = {"numba", "zarr", "h5py", "scipy", "anndata", "sklearn", "pyarrow", "joblib"}


def python(code: str, *words: object, bare: bool = True, **env: object) -> str:
    """The output of `code` in a process that has nothing imported, unless it is not `bare`."""
    done = run(*words, code=code, bare=bare, **env)
    assert done.code == 0, done.err
    return done.out


def test_imports_load_nothing_heavy() -> None:
    for module, none in ("streamsvm", {"numpy", *HEAVY}), ("streamsvm_converters", HEAVY):
        loaded = set(python(f"import sys, {module}; print(*sys.modules)").split())
        assert module in loaded
        assert not loaded & none


COMMANDS = """
import json, sys
from streamsvm_cli.commands import app
for words in json.loads(sys.argv[1]):
    app(words, standalone_mode=False)
print(end="\\0" + " ".join(sys.modules))
"""


def loaded_by_commands(*commands: tuple[object, ...]) -> set[str]:
    """The modules that are loaded after some commands."""
    return set(python(COMMANDS, json.dumps(commands, default=str)).partition("\0")[2].split())


def test_only_the_command_that_is_called_is_imported_and_its_help_loads_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1 1:1\n2 2:1\n")
    commands = {f"streamsvm_cli.{path.stem}" for path in files_of("streamsvm_cli") if path.stem in _SUMMARIES}
    assert len(commands) == len(_SUMMARIES)
    assert not loaded_by_commands(("--help",)) & commands
    for words in ("info", tmp_path / "a.txt"), ("fit", "--help"):
        assert loaded_by_commands(words) & commands == {f"streamsvm_cli.{words[0]}"}
    loaded = loaded_by_commands(*((name, "--help") for name in _SUMMARIES))
    assert loaded >= commands
    assert not loaded & {"numpy", "pydantic", "rich", *HEAVY}


def test_our_own_stores_are_written_read_and_described_without_their_libraries(tmp_path: Path) -> None:
    """Zarr takes a quarter of a second to import, and would only read and write some short JSON."""
    (tmp_path / "a.txt").write_text("1 1:1\n2 2:1\n")
    convert = ("convert", tmp_path / "a.txt", "--out", tmp_path / "a.zarr", "--force")
    fit = ("fit", tmp_path / "a.zarr", "--out", tmp_path / "run", "--passes", "1", "--force")
    for words in (convert, fit):  # so that kernels are compiled
        assert run(*words).code == 0
    loaded = loaded_by_commands(convert, fit)
    assert "numba" in loaded
    assert not loaded & {"numba.np.arraymath", "numba.np.arrayobj", "numba.cpython.listobj"}
    assert not loaded & (HEAVY - {"numba", "scipy"})  # Numba imports the package `scipy` to read its version
    loaded = loaded_by_commands(("info", tmp_path / "a.zarr"), ("info", tmp_path / "run/model"))
    assert "streamsvm.info" in loaded
    assert not loaded & {"tqdm", "rich", "asyncio", *HEAVY}


# -- layers ----------------------------------------------------------------------------------------

# The packages of streamsvm, the lowest first: each imports from its own line and those above it. Packages
# and modules without a line are the top: nothing below imports them.
#
# Imports inside functions count, since they only postpone loading. Imports under TYPE_CHECKING do not count:
# they name the type of an object that the module is given, and that it needs no other module to use (`data`
# cuts any `Store` into blocks, and `store` returns the `Rows` of `data`).
LAYERS = """
errors
base
kernels
losses
settings
data
store chains
transforms
model
inputs
run
training cluster
converted
"""


def imports_of(path: Path, *, for_types: bool = True) -> set[str]:
    """Every module that a file imports, inside functions too, by full name.

    Without `for_types`, those under ``if TYPE_CHECKING:`` are left out.
    """
    found = set()
    nodes: list[ast.AST] = [ast.parse(path.read_text())]
    while nodes:
        node = nodes.pop()
        if not for_types and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            nodes += node.orelse
            continue
        nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def within(name: str, packages: set[str]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def files_of(folder: str) -> list[Path]:
    package, *inner = folder.split("/")
    paths = sorted(FOLDERS[package].joinpath(*inner).rglob("*.py"))
    assert paths
    return paths


def module_of(path: Path) -> str:
    """The full name of the module in a file of one of the three packages."""
    package = next(name for name, folder in FOLDERS.items() if path.is_relative_to(folder))
    inner = path.relative_to(FOLDERS[package]).with_suffix("").parts
    return ".".join([package, *inner]).removesuffix(".__init__")


def test_no_imports_form_a_circle() -> None:
    """Imports inside functions and for type checkers count as well; importing a package is not counted."""
    paths = [path for folder in PACKAGES for path in files_of(folder)]
    modules = {module_of(path) for path in paths}
    graph = {}
    for path in paths:
        names = imports_of(path)
        # `from a.b import c` imports the module a.b.c if there is one, and else the module a.b.
        found = {name if name in modules else name.rpartition(".")[0] for name in names}
        graph[module_of(path)] = found & modules
    assert any(graph.values())
    circle: list[str] = []
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        circle = error.args[1]
    assert not circle, " imports ".join(reversed(circle))


def test_imports_only_go_down() -> None:
    layers = {name: number for number, line in enumerate(LAYERS.splitlines()) for name in line.split()}
    assert all(list(FOLDERS["streamsvm"].glob(f"{name}*")) for name in layers)

    def layer_of(module: str) -> int:
        return layers.get(module.split(".")[1] if "." in module else "", len(layers))

    upward = [
        f"{path} imports {name}"
        for path in files_of("streamsvm")
        for name in imports_of(path, for_types=False)
        if within(name, {"streamsvm"}) and layer_of(name) > layer_of(module_of(path))
    ]
    assert upward == []


def test_the_library_knows_neither_commands_nor_converters() -> None:
    """But for the one file that imports the converters by name, when they are called."""
    for path in files_of("streamsvm"):
        names = imports_of(path)
        if path.name == "__main__.py":  # which is the command line
            names.remove("streamsvm_cli.main.run")
        assert not {name for name in names if within(name, {"streamsvm_cli", "streamsvm_converters"})}, path
        if path.name not in ("converters.py", "errors.py", "__init__.py"):
            assert '"streamsvm_converters"' not in path.read_text(), path


def test_converters_and_kernels_use_only_what_they_need() -> None:
    kernels = {"numpy", "numba", "llvmlite", *sys.stdlib_module_names}
    kernels |= {f"streamsvm.{name}" for name in ("kernels", "errors", "base")}
    names = ("base", "errors", "settings", "store", "inputs", "data", "kernels")
    allowed = {
        "streamsvm_converters": {f"streamsvm.{name}" for name in names},
        "streamsvm/kernels": kernels,
        "streamsvm/losses": kernels | {"streamsvm.losses"},
    }
    for folder, packages in allowed.items():
        for path in files_of(folder):
            found = {name for name in imports_of(path) if not within(name, packages)}
            if folder == "streamsvm_converters":
                found = {name for name in found if within(name, {"streamsvm", "streamsvm_cli"})}
            assert not found, path


# -- compiled code ---------------------------------------------------------------------------------

TINY_FIT = """
import json, logging, sys
from streamsvm import fit
from streamsvm.losses import get_loss
loss = get_loss("ww")
said = []
logging.getLogger("streamsvm").setLevel("INFO")
logging.getLogger("streamsvm").addFilter(lambda record: said.append("compiling" in record.getMessage()))
result = fit(sys.argv[1], out=sys.argv[2], passes=1)
kernels = loss.kernels.visit_matrix, loss.kernels.loss_rows
count = lambda which: sum(sum(getattr(k.stats, which).values()) for k in kernels)
needed_to_compile = {"numba.np.arraymath", "numba.np.arrayobj", "numba.cpython.listobj"}
can_compile = bool(needed_to_compile & sys.modules.keys())
print(json.dumps([count("cache_hits"), count("cache_misses"), any(said), can_compile, result.primal]))
"""


@pytest.mark.parametrize("empty", few([False, True], False))
def test_a_second_process_compiles_nothing(tmp_path: Path, empty: bool) -> None:
    """From the cache that all tests share, which saves compiling, or from one that is empty at first."""
    from helpers import make_problem, make_store

    store = make_store(tmp_path / "a.h5", *make_problem(30, 5, 3))
    cache = {"NUMBA_CACHE_DIR": tmp_path / "cache"} if empty else {}
    first = json.loads(python(TINY_FIT, store, tmp_path / "first", bare=empty, **cache))
    second = json.loads(python(TINY_FIT, store, tmp_path / "second", **cache))
    if empty:
        assert first[:4] == [0, 2, True, True]
    assert second[:4] == [2, 0, False, False]  # nor loads what Numba needs to compile: half a second
    assert first[4] == second[4]


def test_the_stamp_changes_with_every_file_of_kernels(tmp_path: Path) -> None:
    digest = jit.source_digest.__wrapped__
    for loss in LOSSES.values():
        assert digest(FOLDERS["streamsvm"]) in loss.kernels.visit._cache._cache_file._source_stamp
    for name in ("streamsvm", "streamsvm_converters"):
        shutil.copytree(FOLDERS[name], tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    named = re.compile("^@(kernel|inlined|allocating|compiled|intrinsic)", re.MULTILINE)
    for folder in (tmp_path / "streamsvm", tmp_path / "streamsvm_converters"):
        seen = {digest(folder)}
        files = [path for path in folder.rglob("*.py") if named.search(path.read_text())]
        assert len(files) >= 2
        for path in files:
            path.write_text(path.read_text() + "\n")
            assert digest(folder) not in seen, path
            seen.add(digest(folder))


def test_only_one_file_knows_how_numba_compiles() -> None:
    for path in [*files_of("streamsvm"), *files_of("streamsvm_converters")]:
        if path.name != "jit.py":
            assert not re.search(r"_nrt|\bnjit\b|_cache_file|_source_stamp", path.read_text()), path
