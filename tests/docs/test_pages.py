"""Each block of the documentation that a reader may type, run as it stands, in the order of the site.

Blocks marked ``sh`` and ``python`` of all pages run in one folder, as of a reader who goes from page to page,
and the Python blocks of a page share their names, as in one session. Lines of ``pip install`` are not run:
their extras are compared with ``pyproject.toml``. A block whose first comment begins with "needs" says what
it needs that a test does not have, and is not run either. A block marked ``text`` right below another one
shows its output: its lines must be among those that were printed, where numbers may differ.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import io
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from page_data import DATA

from streamsvm.errors import SettingsError
from streamsvm.losses import LOSSES
from streamsvm.settings.fit import Settings

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
ON_SITE = re.findall(r"^ +- .*: (.*\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)  # in their order
PIP = re.compile(r"pip install .*")
COMMAND = re.compile(r"(\$ )?(streamsvm|pip|python|mkdocs|pytest) \S")


@dataclasses.dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    shows: str  # the output below it

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def needs(self) -> str | None:
        """What the block needs that a test does not have."""
        found = re.match(r"(?:#!.*\n)?# needs (.*)\n", self.text)
        return found and found[1]

    @property
    def commands(self) -> str:
        """All but the installation."""
        return "".join(line for line in self.text.splitlines(True) if not PIP.match(line)).strip()

    @property
    def is_run(self) -> bool:
        return self.language in ("sh", "python") and bool(self.commands) and not self.needs


def blocks_of(path: Path) -> list[Block]:
    text = path.read_text()
    found = re.finditer(r"^```(.*)\n((?:.*\n)*?)^```$(?:\n\n```text\n((?:.*\n)*?)```$)?", text, re.MULTILINE)
    blocks = []
    for match in found:
        line = text.count("\n", 0, match.start()) + 2
        blocks.append(Block(path.relative_to(ROOT).as_posix(), line, match[1], match[2], match[3] or ""))
    return blocks


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PACKAGES = {"report.md": ("matplotlib",)}  # of extras that the tests do without


def masked(line: str) -> str:
    """A line without the numbers and blanks, which differ from machine to machine."""
    return re.sub(r"[\d.,]*\d(e[+-]?\d+)?", "#", " ".join(line.split()))


def in_shell(commands: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", "set -o pipefail\n" + commands], cwd=folder, env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def in_python(block: Block, names: dict[str, object]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * (block.line - 1) + block.text, str(ROOT / block.page), "exec"), names)
    return printed.getvalue()


def run_page(name: str, folder: Path) -> None:
    """Run the blocks of a page in a folder, with the data that the page expects, unless it is there."""
    blocks = [block for block in blocks_of(ROOT / "docs" / name) if block.is_run]
    make, file = DATA.get(name, (None, ""))
    if blocks and make is not None and not (folder / file).exists():
        make()
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:
        printed = in_shell(block.commands, folder) if block.language == "sh" else in_python(block, names)
        lines = {masked(line) for line in printed.splitlines()}
        missing = [line for line in block.shows.splitlines() if line.strip() and masked(line) not in lines]
        assert not missing, f"{block} shows what is not printed: {missing}\n{printed}"


@pytest.mark.more
@pytest.mark.filterwarnings("default")  # as users see them: of anndata, and of genes that a query lacks
def test_blocks_run_as_they_stand_one_page_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ON_SITE:
        if all(importlib.util.find_spec(package) for package in PACKAGES.get(name, ())):
            run_page(name, tmp_path)


def test_every_block_is_of_a_kind_that_is_run_or_shown() -> None:
    assert {block.language for block in BLOCKS} <= {"sh", "python", "text"}
    hidden = [
        str(block)
        for block in BLOCKS
        if block.language == "text" and any(COMMAND.match(line) for line in block.text.splitlines())
    ]
    assert hidden == []


def test_extras_that_are_to_be_installed_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for page in [*PAGES, ROOT / "README.md"]:
        for names in re.findall(r"'\.\[([\w,-]+)\]'", page.read_text()):
            assert set(names.split(",")) <= set(extras), f"{page.name}: {names}"
        assert "install 'streamsvm" not in page.read_text(), f"{page.name}: the package is on no index"


def test_the_readme_has_no_commands_that_other_tests_do_not_run() -> None:
    """They are run by `tests/test_examples.py`; CI runs the installation."""
    sections = re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", (ROOT / "README.md").read_text(), re.MULTILINE)
    languages = {title: re.findall(r"^```(.*)\n", text, re.MULTILINE)[::2] for title, text in sections}
    assert {title: found for title, found in languages.items() if found} == {
        "Install and test": ["sh"], "One command": ["sh"], "Single-cell data": ["sh"], "Tables": ["sh"],
        "Text": ["sh"], "Embeddings": ["sh"], "On the command line": ["sh"], "In Python": ["python"],
        "All the cores, and many machines": ["sh"],
    }  # fmt: skip


def test_the_reference_has_all_public_names() -> None:
    import streamsvm_converters

    import streamsvm

    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    for module in (streamsvm, streamsvm_converters):
        listed = set(re.findall(rf"^::: {module.__name__}(?:\.convert)?\.(\w+)$", page, re.MULTILINE)) - {
            "errors"
        }
        assert listed == set(module.__all__)


def test_the_table_of_losses_says_what_settings_take() -> None:
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    page = SimpleNamespace(file=SimpleNamespace(src_uri="losses.md"))
    found = hooks.on_page_markdown((ROOT / "docs" / "losses.md").read_text(), page=page)
    rows = [
        re.split(r" *\| *", line.replace("`", ""))[1:-1]
        for line in found.splitlines()
        if line.startswith("| `")
    ][1:]
    assert [name for name, *_ in rows] == list(LOSSES)
    for name, _, solvers, _, _, costs, splits in rows:
        for taken, settings in (
            (bool(costs), {"costs": "costs.csv"}),
            ("classes" in splits, {"splits": 2, "split": "classes"}),
            ("rows" in splits, {"splits": 2, "split": "rows"}),
            (True, {"solver": solvers.split(", ")[-1]}),
        ):
            with contextlib.nullcontext() if taken else pytest.raises(SettingsError):
                Settings(loss=name, **settings)


def test_the_navigation_has_all_pages() -> None:
    assert sorted(ON_SITE) == [page.relative_to(ROOT / "docs").as_posix() for page in PAGES]
