"""Clocks that jump, forward and back, by up to a year: no crash, the same model, and no negative time."""

from __future__ import annotations

import json

import pytest
from cases import few
from trials import fit, parts


@pytest.mark.parametrize("seed", few(range(3), 1))
def test_jumping_clocks(launcher, inputs, quick_path, seed: int) -> None:
    every = ("--passes", 3, "--checkpoint-every", "10s", "--block-rows", 100)
    for name, clock in (("steady", None), ("jumps", seed)):
        (quick_path / name).mkdir()
        fitted = launcher(*fit(inputs / "s.h5", *every), cwd=quick_path / name, count=False, clock=clock)
        assert (fitted.code, fitted.err) == (0, "")
    resumed = launcher(
        "resume", "run", "--passes", 4, "--checkpoint-every", "10s", "--json",
        cwd=quick_path / "jumps", count=False, clock=seed + 100,
    )  # fmt: skip
    assert (resumed.code, resumed.err) == (0, "")
    assert launcher("resume", "run", "--passes", 4, cwd=quick_path / "steady", count=False).code == 0
    assert parts(quick_path / "jumps", ("run/model",)) == parts(quick_path / "steady", ("run/model",))
    metrics = (quick_path / "jumps/run/metrics.jsonl").read_text().splitlines()
    results = [json.loads(fitted.out), json.loads(resumed.out)]
    for record in [*map(json.loads, metrics), *results]:
        times = {k: v for k, v in record.items() if "second" in k or "waited" in k}
        assert all(value >= 0 for value in times.values()), times
    converted = launcher(
        "convert", inputs / "text", "--out", "s.h5", "--json", cwd=quick_path, count=False, clock=seed
    )
    assert converted.code == 0
    assert json.loads(converted.out)["seconds"] >= 0
