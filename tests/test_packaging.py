"""What is packed: every module and file, one version, and claims about Python that agree."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from warm_process import run

import streamsvm

ROOT = Path(__file__).parents[1]
CONFIGURATION = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = CONFIGURATION["project"]
FOLDERS = {"streamsvm": "streamsvm", "cli": "streamsvm_cli", "converters": "streamsvm_converters"}


def test_every_folder_with_modules_is_a_package_of_the_wheel() -> None:
    """`setup.py` finds folders with `__init__.py`; one without would be missing after an installation."""
    code = (
        "from setuptools import Distribution; from distutils.core import run_setup; "
        "print(*run_setup('setup.py', stop_after='init').packages)"
    )
    done = run(code=code, cwd=ROOT, bare=True)
    modules = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    folders = {path.parent.relative_to(ROOT).parts for path in modules}
    expected = [".".join([FOLDERS[folder], *inner]) for folder, *inner in folders]
    assert sorted(done.out.split()) == sorted(expected)


def test_every_file_that_is_no_module_is_packed() -> None:
    patterns = {
        path
        for package, globs in CONFIGURATION["tool"]["setuptools"]["package-data"].items()
        for glob in globs
        for path in (ROOT / next(f for f, p in FOLDERS.items() if p == package)).glob(glob)
    }
    files = {
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
    }
    assert files == patterns


def test_the_version_is_that_of_the_module() -> None:
    assert "version" not in PROJECT
    assert importlib.metadata.version("streamsvm") == streamsvm.__version__
    command = [sys.executable, "-m", "streamsvm", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{streamsvm.__version__}\n"
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {streamsvm.__version__}\n" in citation
    assert f"\nlicense: {PROJECT['license']}\n" in citation


def test_claims_about_python_agree() -> None:
    versions = re.findall(r"Python :: 3\.(\d+)", " ".join(PROJECT["classifiers"]))
    assert versions == sorted(versions, key=int)
    oldest = f"3.{versions[0]}"
    assert PROJECT["requires-python"] == f">={oldest}"
    assert CONFIGURATION["tool"]["mypy"]["python_version"] == oldest
    assert CONFIGURATION["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    matrix = re.search(r"python: \[(.*)\]", (ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert matrix
    assert {f"3.{version}" for version in versions} <= set(re.findall(r"3\.\d+", matrix[1]))
