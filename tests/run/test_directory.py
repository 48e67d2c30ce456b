"""The run directory: which names are its own, and what may be replaced."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import IN_FILES, fit_with, make_problem, make_store
from helpers import plain_fit as fit

from streamsvm.errors import RunError
from streamsvm.run.directory import RunDir


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X, labels = make_problem(300, 4000, 30, density=0.01)
    return make_store(tmp_path_factory.mktemp("data") / "s.h5", X, labels, chunk_nnz=512)


def test_a_run_owns_every_name_that_appears_in_it(store: Path, tmp_path: Path) -> None:
    """With weights in files, so that nearly all files of a run exist."""
    run = RunDir(tmp_path / "run")
    seen: set[str] = set()

    def look() -> bool:
        seen.update(path.name for path in run.path.iterdir())
        return False

    fit_with(IN_FILES, store, out=run.path, passes=2, checkpoint_every="1", stop=look)
    look()
    assert {"weights.bin", "duals-1-0-0.bin", "committed-1.bin", "model", "lock"} <= seen
    assert {name for name in seen if not run.owns(name)} == set()


def test_other_files_are_never_deleted(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    fit(store, out=run, passes=1)
    others = (
        "notes.txt", "duals-a.bin", "duals-1-0-0xbin", "duals-1-0-0.bin.bak", "committed-.bin", "Model",
        "lock.tmp",
    )  # fmt: skip
    for folder, force in (run, True), (tmp_path / "thesis", True), (tmp_path / "thesis", False):
        folder.mkdir(exist_ok=True)
        for name in others:
            (folder / name).write_text("a file of the user")
            with pytest.raises(RunError, match=rf"contains other files \({name}\)"):
                fit(store, out=folder, passes=1, force=force)
            assert (folder / name).read_text() == "a file of the user"
            (folder / name).unlink()
    assert (run / "model").exists()
    for name in ("run.json.tmp", "duals-7-0-0.bin", "committed-31.bin", "model.aside", "model.old"):
        (run / name).write_text("")  # as a crash leaves them
    fit(store, out=run, passes=1, force=True)
    assert not (run / "duals-7-0-0.bin").exists()
    assert not (run / "model.old").exists()
