"""A disk that is full, at every call that could find it so: one clear line, nothing lost, and it goes on."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cases import few
from command_line import succeeds
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


# Forks for each size: argv[1] is a folder, then sizes in KiB, and after "--" the command. One run before
# loads what the others need.
ON_TMPFS = """
import contextlib, os, subprocess, sys
from streamsvm_cli import main

_, folder, *sizes = sys.argv[: sys.argv.index("--")]
sys.argv = sys.argv[sys.argv.index("--") :]
with contextlib.suppress(SystemExit):
    main.run()
for size in sizes:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", folder], check=True)
    child = os.fork()
    if child == 0:
        sys.argv += ["--out", folder + "/run"]
        main.run()
        os._exit(0)
    print(size, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    subprocess.run(["umount", folder], check=True)
"""
FEATURES, CLASSES = 50_000, 100  # weights of 22.4 MB with padding, of a stream an average as much
SIZES = [*range(20_000, 90_000, 4_000), 100_000]  # KiB


@pytest.mark.parametrize("every", few([False, True], False))
@pytest.mark.parametrize("command", few(["fit", "online"], "fit"))
def test_mapped_weights_on_a_tmpfs_of_any_size_end_with_one_line(
    tmp_path: Path, command: str, every: bool
) -> None:
    """There, reading a page of a sparse file takes space; none left is SIGBUS, where a write would fail."""
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs a namespace to mount a tmpfs in")
    rng = np.random.default_rng(0)
    with open(tmp_path / "text", "w") as file:
        for row in range(1_000):
            features = np.unique(rng.integers(1, FEATURES + 1, 10))
            print(row % CLASSES, *(f"{j}:1" for j in [*features[:-1], FEATURES]), file=file)
    disk, data, valid = tmp_path / "disk", tmp_path / "text", []
    disk.mkdir()
    if command == "fit":  # and score features that no row has which was learned from
        data, few_rows = tmp_path / "s.zarr", tmp_path / "few"
        few_rows.write_text("".join((tmp_path / "text").read_text().splitlines(True)[:200]))
        succeeds("convert", few_rows, "--out", data, "--quiet")
        succeeds("convert", tmp_path / "text", "--out", tmp_path / "valid.zarr", "--quiet")
        valid = ["--valid", tmp_path / "valid.zarr", "--passes", 2, "--no-average"]
    sizes = SIZES if every else [*SIZES[1:4], SIZES[-1]]
    options = ["--C", 0.01, "--quiet", "--memory", "20M", "--out", tmp_path / "before", *valid]
    ended = subprocess.run(
        list(map(str, ["unshare", "-rm", sys.executable, "-c", ON_TMPFS, disk, *sizes,
                       "--", command, data, *options])),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    codes = [int(line.split()[1]) for line in ended.stdout.splitlines()]
    lines = ended.stderr.splitlines()
    assert codes[-1] == 0
    assert set(codes) == {0, 1}
    assert len(lines) == codes.count(1), ended.stderr
    assert all(line.startswith("streamsvm: ") for line in lines), ended.stderr
