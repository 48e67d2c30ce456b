"""Files and label columns that a command cannot take: one line says what to type instead, and that works."""

from __future__ import annotations

import shlex
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from command_line import fails, succeeds

LABEL = ("--label", "cell type")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, rng = tmp_path_factory.mktemp("cells"), np.random.default_rng(0)
    files = {"csc": (sp.csc_matrix, 90, "ab"), "rows": (sp.csr_matrix, 60, "ab")}
    files |= {"empty": (sp.csr_matrix, 0, "ab"), "other": (sp.csr_matrix, 20, "xy")}
    for name, (form, n, classes) in files.items():
        codes = rng.integers(2, size=n)
        obs = pd.DataFrame({"cell type": pd.Categorical.from_codes(codes, list(classes))})
        obs.index = obs.index.astype(str)
        X = rng.normal(size=(n, 4)) + 3 * codes[:, None]
        anndata.AnnData(form(X.astype("f4")), obs).write_h5ad(path / f"{name}.h5ad")
    return path


def test_a_csc_file_becomes_a_store_that_knows_its_label(folder: Path, tmp_path: Path) -> None:
    assert "name the label column with --label" in fails(1, "fit", "csc.h5ad", "--out", "run", cwd=folder)
    told = fails(1, "fit", "csc.h5ad", *LABEL, "--out", "run", cwd=folder)
    program, *convert = shlex.split(told.split("`")[1])
    assert program == "streamsvm"
    succeeds(*convert, cwd=folder)
    for command, label in (("fit", ()), ("fit", LABEL), ("tune", ()), ("tune", LABEL)):
        words = (command, convert[-1], "--valid", "rows.h5ad", *label, "--out", tmp_path / "run", "--force")
        assert "rows.h5ad: accuracy" in succeeds(*words, cwd=folder, notes=True)
    told = fails(1, "fit", convert[-1], "--label", "donor", "--out", "run", cwd=folder)
    assert "the only label column is 'cell type'" in told


def test_lines_say_what_is_wrong(folder: Path) -> None:
    succeeds("fit", "rows.h5ad", *LABEL, "--out", "run-1", cwd=folder, notes=True)
    commands = {
        ("fit", "rows.h5ad", "--labels", "cell type", "--out", "run"): "with --label 'cell type'\n",
        ("convert", "rows.h5ad", "--labels", "cell type", "--out", "s.zarr"): "with --label 'cell type'\n",
        ("fit", "empty.h5ad", *LABEL, "--out", "run"): "empty.h5ad has no rows to train on\n",
        ("fit", "rows.h5ad", *LABEL, "--valid", "empty.h5ad", "--out", "run"): "empty.h5ad has no rows\n",
        ("evaluate", "run-1", "empty.h5ad"): "empty.h5ad has no rows\n",
        (
            "evaluate",
            "run-1",
            "other.h5ad",
        ): "its labels are 'x', 'y', and the classes are 'a', 'b'; name another",
    }
    for words, line in commands.items():
        assert line in fails(2 if words[0] == "convert" else 1, *words, cwd=folder)
