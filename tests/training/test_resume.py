"""A run that was stopped, killed or extended ends in the same bytes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from helpers import IN_FILES, fit_with, resume_with
from helpers import plain_fit as fit
from run_files import files_of_duals, metrics_of, model_bytes, stop_after, without_times
from small_problem import BLOCK

from streamsvm import resume
from streamsvm.errors import Call, Interrupted, RunError
from streamsvm.run.directory import RunDir

RUNS = [
    ("ww", "float32", {}, "1h", 2),
    ("ww", "float64", {"margin": 0.5, "C": 0.5, "tol": 1e-9}, "2", 4),
    ("cs", "float64", {"gap": "end"}, "1", 3),
    ("cs", "float64", {"gap": "none"}, "3", 4),
]


@pytest.mark.parametrize(("loss", "dtype", "options", "every", "step"), RUNS)
def test_a_run_stopped_anywhere_and_resumed_gives_the_same_model(
    tmp_path: Path, store: Path, loss: str, dtype: str, options: dict, every: str, step: int
) -> None:
    """After each block, or each few blocks, of training and of scoring."""
    options = {"passes": 3, "loss": loss, "dtype": dtype, "block_rows": BLOCK, "valid": store, **options}
    whole = fit(store, out=tmp_path / "whole", **options)
    run = tmp_path / "run"
    for n in itertools.count(1, step):
        try:
            fit(store, out=run, stop=stop_after(n), checkpoint_every=every, force=True, **options)
        except Interrupted as stopped:
            remedy = stopped.remedy
        else:
            break
        assert remedy.parts == (Call("resume", run),)
        assert not (run / "model").exists()
        result = resume(run)
        assert model_bytes(run) == model_bytes(tmp_path / "whole"), n
        assert without_times(metrics_of(run)) == without_times(metrics_of(tmp_path / "whole")), n
        assert without_times(result.history) == without_times(whole.history)
        assert all(text.startswith("the tolerance 1e-09 was not reached") for text in result.warnings)
    readings = {"pass": 6, "end": 4, "none": 3}[options.get("gap", "end")]
    assert n - 1 > 5 * readings - step  # every block of every pass and scoring, and of the valid store


def test_a_run_stopped_at_every_block_again_and_again_gives_the_same_model(
    tmp_path: Path, store: Path
) -> None:
    options = {"passes": 3, "block_rows": BLOCK, "gap": "pass"}
    fit(store, out=tmp_path / "whole", **options)
    stops = 0
    try:
        fit(store, out=tmp_path / "run", stop=stop_after(1), **options)
    except Interrupted:
        for stops in itertools.count(1):
            # A scoring begins anew, so two blocks of it are needed for it to end.
            try:
                resume(tmp_path / "run", stop=stop_after(1 if stops % 7 else 6))
                break
            except Interrupted:
                assert stops < 300
    assert stops > 15
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")
    assert without_times(metrics_of(tmp_path / "run")) == without_times(metrics_of(tmp_path / "whole"))


@pytest.mark.parametrize("loss", ["ww", "cs"])
def test_a_run_extended_to_three_passes_equals_one_of_three_passes(
    tmp_path: Path, store: Path, loss: str
) -> None:
    options = {"loss": loss, "block_rows": BLOCK, "gap": "pass", "C": 0.5, "dtype": "float64"}
    fit(store, out=tmp_path / "three", passes=3, **options)
    fit(store, out=tmp_path / "run", passes=1, keep_duals=True, **options)
    first = model_bytes(tmp_path / "run")
    for passes in (2, 3):
        result = resume(tmp_path / "run", passes=passes)
        assert result.passes == passes
        assert model_bytes(tmp_path / "run") != first
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "three")
    assert without_times(metrics_of(tmp_path / "run")) == without_times(metrics_of(tmp_path / "three"))
    with pytest.raises(RunError, match=r"has begun pass 3, so passes cannot be reduced to 2$"):
        resume(tmp_path / "run", passes=2)


@pytest.mark.parametrize("stopped", [8, 10, 13])
def test_a_run_that_was_stopped_can_be_shortened_to_passes_that_have_not_begun(
    tmp_path: Path, store: Path, stopped: int
) -> None:
    """It ends with the model that it would have had, had it been begun with these passes."""
    options = {"block_rows": BLOCK, "gap": "end"}
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        fit(store, out=run, passes=9, stop=stop_after(stopped), **options)
    done, blocks = divmod(stopped, 5)
    least = done + 1 + (blocks > 0)
    before = (run / "run.json").read_bytes()
    with pytest.raises(RunError, match=f"pass {least - 1}, .* to {least - 1}; use passes={least} or more"):
        resume(run, passes=least - 1)
    assert (run / "run.json").read_bytes() == before
    resume(run, passes=least)
    fit(store, out=tmp_path / "whole", passes=least, **options)
    assert model_bytes(run) == model_bytes(tmp_path / "whole")


def test_a_run_whose_c_depends_on_its_passes_cannot_be_shortened(tmp_path: Path, store: Path) -> None:
    with pytest.raises(Interrupted):
        fit(store, out=tmp_path / "run", passes=9, stop=stop_after(4), C=4, tol=1e-9)
    with pytest.raises(RunError, match="cannot be shortened: C depends on the number of passes"):
        resume(tmp_path / "run", passes=6)


def test_a_run_without_duals_resumes_but_cannot_be_extended(tmp_path: Path, store: Path) -> None:
    options = {"passes": 1, "block_rows": BLOCK}
    fit(store, out=tmp_path / "whole", **options)
    assert not list((tmp_path / "whole").glob("duals-*"))
    with pytest.raises(Interrupted):
        fit(store, out=tmp_path / "run", stop=stop_after(3), **options)
    with pytest.raises(RunError, match="its duals were not kept"):
        resume(tmp_path / "run", passes=2)
    resume(tmp_path / "run")
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


def test_only_the_duals_that_commits_need_are_kept(tmp_path: Path, store: Path) -> None:
    fit(store, out=tmp_path / "run", passes=5, block_rows=BLOCK, checkpoint_every="1")
    duals = files_of_duals(tmp_path / "run", 5)
    assert duals == sorted((tmp_path / "run").glob("duals-*"))
    assert duals
    assert len(list((tmp_path / "run").glob("committed-*"))) == 1
    with pytest.raises(Interrupted):
        fit(
            store, out=tmp_path / "stopped", passes=5, block_rows=BLOCK, checkpoint_every="1",
            stop=stop_after(9),
        )  # fmt: skip
    assert len(list((tmp_path / "stopped").glob("committed-*"))) == 1


class Killed(BaseException):
    """Stands for the death of the process."""


def test_a_finished_run_keeps_no_weights_and_is_extended_to_the_same_bytes(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the process died after the model was saved and before the weights were deleted."""
    options: dict[str, Any] = {"block_rows": BLOCK, "average": True}
    fit_with(IN_FILES, store, out=tmp_path / "whole", passes=3, **options)
    assert not list((tmp_path / "whole").glob("weights*"))
    finished, killed = tmp_path / "finished", tmp_path / "killed"
    fit_with(IN_FILES, store, out=finished, passes=2, **options)

    def die(run: RunDir) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunDir, "clean_up", die)
        with pytest.raises(Killed):
            fit_with(IN_FILES, store, out=killed, passes=2, **options)
    assert list(killed.glob("weights*"))
    assert model_bytes(killed) == model_bytes(finished)
    assert not list(finished.glob("weights*"))
    for run in (finished, killed):
        assert resume_with(IN_FILES, run).passes == 2  # nothing is left to do
        assert not list(run.glob("weights*"))
        resume_with(IN_FILES, run, passes=3)
        assert not list(run.glob("weights*"))
        assert model_bytes(run) == model_bytes(tmp_path / "whole")
