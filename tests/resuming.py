"""A run that is stopped and resumed anywhere, compared with a whole one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from helpers import plain_fit as fit
from run_files import metrics_of, model_bytes, stop_after, without_times

from streamsvm import resume
from streamsvm.errors import Interrupted


def assert_resumes(folder: Path, data: Path, stops: Iterable[int], workers: int = 1, **options: Any) -> None:
    """A run stopped at each of some blocks and resumed, by other workers, has the bytes of a whole one."""
    whole, run = folder / "whole", folder / "run"
    fit(data, out=whole, **options)
    for n in stops:
        with pytest.raises(Interrupted):
            fit(data, out=run, stop=stop_after(n), checkpoint_every="1", workers=1, force=True, **options)
        resume(run, workers=workers)
        assert model_bytes(run) == model_bytes(whole), n
        assert without_times(metrics_of(run)) == without_times(metrics_of(whole)), n
