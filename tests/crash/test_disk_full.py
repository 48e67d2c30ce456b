"""A disk that is full, at every call that could find it so: one clear line, nothing lost, and it goes on."""

from __future__ import annotations

import errno

import numpy as np
import pytest
from cases import few
from trials import RESUME, Case, Trial, convert, fit, spread

# The calls that fail on a full disk. fsync does where blocks are given out late, or over a network.
KINDS = ["create", "write", "grow", "mkdir", "link", "rename", "fsync"]
SHORT = 5  # calls struck in a case of the default suite

ZARR, HDF5 = ("s.zarr",), ("s.h5",)
OLDER_ZARR, OLDER_HDF5 = (convert("s.zarr", "--no-shuffle"),), (convert("s.h5", "--no-shuffle"),)
MODEL = ("run/model",)
PREDICT = ("predict", "run", "../text", "--out", "p", "--force")
CASES = {
    "convert-zarr": Case((), convert("s.zarr"), convert("s.zarr"), made=ZARR),
    "convert-hdf5": Case((), convert("s.h5"), convert("s.h5"), made=HDF5),
    "replace-zarr": Case(OLDER_ZARR, convert("s.zarr", "--force"), convert("s.zarr", "--force"), ZARR, ZARR),
    "replace-hdf5": Case(OLDER_HDF5, convert("s.h5", "--force"), convert("s.h5", "--force"), HDF5, HDF5),
    "fit": Case((), fit("../s.zarr"), fit("../s.zarr", "--force"), made=MODEL),
    "resume": Case((fit("../s.h5", "--keep-duals"),), RESUME, RESUME, made=MODEL),
    "predict": Case((fit("../s.h5"), (*PREDICT, "--top-k", 2)), PREDICT, PREDICT, ("run", "p"), ("p",)),
}


@pytest.mark.parametrize("every", few([False, True], False))
@pytest.mark.parametrize("name", few(CASES, "convert-zarr", "resume"))
def test_full(traced, inputs, quick_path, name: str, every: bool) -> None:
    trial = Trial(traced, inputs, quick_path, CASES[name], KINDS, errno.ENOSPC)
    rng = np.random.default_rng(list(name.encode()))
    numbers = spread(trial.calls, rng)[:SHORT]
    if every:  # rows in buckets of the external shuffle are all alike
        numbers = [n for n, call in enumerate(trial.calls) if "rows-" not in call or rng.random() < 0.1]
    said = []
    for number in numbers:
        # Full from here on; full for one call, as when others free and fill it; full within a write.
        ways = [{"stays": True}, {}, *([{"half": True}] if trial.calls[number].startswith("write") else [])]
        for how in ways if every else [ways[int(rng.integers(len(ways)))]]:
            said.append(trial.strike(number, **how))
    failed = [line for line in said if line]
    assert len(failed) >= len(said) / 2
    for line in failed:  # where, and what to do
        assert any(word in line for word in ("s.zarr", "s.h5", "run", "/p:")), line
        assert "free some space" in line, line
