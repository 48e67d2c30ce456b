"""Features that a file selects by names or numbers."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import as_rows

from streamsvm.errors import SettingsError, StreamsvmWarning
from streamsvm.transforms import names_after, parse_transforms
from streamsvm.transforms.fitting import fit_transforms, raw_rows
from streamsvm.transforms.selection import Select

N, D = 150, 20
NAMES = [f"gene{j}" for j in range(D)]


@pytest.fixture
def X() -> sp.csr_array:
    rng = np.random.default_rng(2)
    dense = rng.poisson(rng.gamma(0.5, 2.0, size=(N, D))).astype(np.float64)
    return sp.csr_array(dense)


def select(path: Path, X: sp.csr_array, names: list[str] | None) -> Select:
    raw = raw_rows(as_rows(X, np.zeros(X.shape[0], np.int32)), X.shape[1], names)
    found = fit_transforms(parse_transforms(f"select={path}"), raw)[0].transforms[-1]
    assert isinstance(found, Select)
    return found


@pytest.mark.parametrize("kept", [[3], [0, 4, 9, 19], list(range(D))])
def test_rows_have_the_selected_features(kept: list[int], tmp_path: Path, X: sp.csr_array) -> None:
    (tmp_path / "genes").write_text("\n".join(NAMES[j] for j in kept))
    found = select(tmp_path / "genes", X, NAMES)
    assert found.array.tolist() == kept
    assert names_after([found], NAMES) == [NAMES[j] for j in kept]
    rows = found(as_rows(X, np.zeros(N, np.int32)))
    selected = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(N, len(kept))).toarray()
    np.testing.assert_array_equal(selected, X.toarray()[:, kept])


def test_a_file_names_features_in_any_order(tmp_path: Path, X: sp.csr_array) -> None:
    (tmp_path / "genes").write_text("gene9\n\ngene2 \ngene9\n")
    found = select(tmp_path / "genes", X, NAMES)
    assert found.array.tolist() == [2, 9]
    assert str(tmp_path) not in str(found.record())  # the model must not depend on where the file is
    (tmp_path / "genes").write_text("gene9\nx\ny\n")
    with pytest.warns(StreamsvmWarning, match=r"lists 2 features that the data lacks \('x', 'y'\)"):
        select(tmp_path / "genes", X, NAMES)


def test_a_file_numbers_features_that_have_no_names(tmp_path: Path, X: sp.csr_array) -> None:
    (tmp_path / "numbers").write_text("3\n0\n")
    found = select(tmp_path / "numbers", X, None)
    assert found.array.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("text", "names", "message"),
    [
        ("gene1\n", None, "lists 'gene1', but the features have no names; list feature numbers"),
        ("x\n", NAMES, "lists no feature of the data (its first entry is 'x'); list other features"),
        ("", NAMES, "lists no feature of the data; list other"),
        (None, NAMES, "cannot be read: No such file"),
        ("a pipe", NAMES, "cannot be read: not a regular file"),
    ],
)
def test_a_file_that_selects_nothing_is_refused(
    text: str | None, names: list[str] | None, message: str, tmp_path: Path, X: sp.csr_array
) -> None:
    if text == "a pipe":  # which nobody writes to
        os.mkfifo(tmp_path / "genes")
    elif text is not None:
        (tmp_path / "genes").write_text(text)
    with pytest.raises(SettingsError, match=re.escape(message)):
        select(tmp_path / "genes", X, names)
