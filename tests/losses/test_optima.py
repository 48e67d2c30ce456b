"""Every loss reaches the optimum of a general convex solver, on random problems and on real rows."""

from __future__ import annotations

import bz2
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from cases import few
from helpers import make_problem
from helpers import plain_fit as fit
from sklearn.datasets import load_svmlight_file
from small_problem import assert_encloses, digits, exactly, of_loss

from streamsvm.losses import ROW_LOSSES as LOSSES

FORMULATIONS = [(loss.name, margin) for loss in LOSSES.values() for margin in loss.margins]
N_PROBLEMS, QUICK = 50, 14  # of each formulation; the quick ones have each number of classes twice


def random_problem(number: int, loss: str) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Rows, some of them empty, of 2 to 8 classes; their labels; C from 1e-2 to 10 and other settings."""
    rng = np.random.default_rng(number)
    k, n, d = 2 + number % 7, int(rng.integers(12, 26)), int(rng.integers(3, 9))
    X, labels = make_problem(n, d, k, seed=number, noise=rng.uniform(0.3, 2), empty=number % 3)
    settings: dict[str, Any] = {"C": 10 ** rng.uniform(-2, 1)}
    if "smooth" in LOSSES[loss].parameters:
        settings["smooth"] = rng.choice([0.05, 0.5, 2.0])
    if "top" in LOSSES[loss].parameters:
        settings["top"] = int(rng.integers(1, k + 1))
    return X.toarray().astype(float), labels, settings


@pytest.mark.parametrize(
    "numbers",
    [range(QUICK), pytest.param(range(QUICK, N_PROBLEMS), marks=pytest.mark.more)],
    ids=["quick", "others"],
)
@pytest.mark.parametrize(("loss", "margin"), FORMULATIONS)
def test_primal_and_dual_enclose_the_optimum_of_a_general_solver(
    loss: str, margin: float, numbers: range
) -> None:
    pytest.importorskip("cvxpy")
    import general_solver

    for number in numbers:
        X, labels, settings = random_problem(number, loss)
        used = X.any(axis=1)
        k = labels.max() + 1
        optimum, _ = general_solver.solve(loss, X[used], labels[used], k, margin=margin, **settings)
        model = fit(X, labels, loss=loss, margin=margin, **settings, **exactly(loss))
        assert_encloses(model.result, optimum)
        expected = reference.primal(model.coef_.T, X, labels, loss=loss, margin=margin, **settings)
        assert model.result.primal == pytest.approx(expected, rel=1e-10)


# Optima of the first rows of data sets by Clarabel, to 1e-10, at C = 1 and 1/16 (letter: C = 1 alone).
HARD = 1.43353238  # of dna: of the hard margin
OPTIMA = {
    "dna.scale": {
        ("ww", 1.0): (HARD, HARD), ("ww", 0.5): (5.73412953, 4.84672299),
        ("ww2", 1.0): (1.41437944, 1.19636587), ("ww2", 0.5): (5.44510116, 3.47531881),
        ("wws", 1.0): (1.41437944, 1.19636587), ("wws", 0.5): (5.44510116, 3.46624867),
        ("cs", 1.0): (HARD, 1.43342112), ("cs2", 1.0): (1.41065504, 1.15795165),
        ("top-m", 1.0): (HARD, 1.3889726),
        ("llw", 1.0): (19.5858636, 9.99289641), ("llw2", 1.0): (17.1956386, 7.4057411),
        ("ovr", 1.0): (6.59438339, 5.83430954), ("ovr2", 1.0): (6.33664183, 4.2902573),
        ("logistic", 1.0): (21.5728389, 5.72606378), ("sparsemax", 1.0): (1.35427397, 0.816827126),
    },
    "satimage.scale": {
        ("ww", 1.0): (29.2474831, 5.98770184), ("ww", 0.5): (56.9534184, 9.9734598),
        ("ww2", 1.0): (21.4663602, 4.85514476), ("ww2", 0.5): (43.9273092, 8.01102291),
        ("wws", 1.0): (20.8784706, 4.26380346), ("wws", 0.5): (40.4682304, 7.00953525),
        ("cs", 1.0): (24.8069878, 4.10033927), ("cs2", 1.0): (19.0118935, 3.44272185),
        ("top-m", 1.0): (20.9340343, 3.45985057),
        ("llw", 1.0): (286.951755, 22.8741969), ("llw2", 1.0): (381.057121, 28.0215588),
        ("ovr", 1.0): (129.035736, 14.5334131), ("ovr2", 1.0): (133.250836, 14.4798564),
        ("logistic", 1.0): (54.5906701, 7.8369046), ("sparsemax", 1.0): (9.36932532, 1.40593853),
    },
    "letter.scale": {
        ("ww", 1.0): (579.266783,), ("ww", 0.5): (1041.69217,), ("ww2", 1.0): (468.436293,),
        ("ww2", 0.5): (808.983577,), ("wws", 1.0): (412.119484,), ("wws", 0.5): (730.774877,),
        ("cs", 1.0): (209.503639,), ("cs2", 1.0): (185.911928,), ("sparsemax", 1.0): (77.7860324,),
        ("top-m", 1.0): (198.960764,), ("llw", 1.0): (6136.35959,), ("llw2", 1.0): (6429.53202,),
        ("ovr", 1.0): (655.653216,), ("ovr2", 1.0): (807.195592,), ("logistic", 1.0): (570.874256,),
    },
}  # fmt: skip
OF_TABLE: dict[str, dict[str, Any]] = {"wws": {"smooth": 0.5}, "top-m": {"top": 2}}
OF_SETS = sorted(OPTIMA["dna.scale"])
ROWS = {"dna.scale": 200, "satimage.scale": 200, "letter.scale": 260}


def test_every_loss_has_its_optima_and_values_of_its_parameters() -> None:
    assert reference.LOSSES.keys() == LOSSES.keys()
    for name, loss in LOSSES.items():
        of_tests = vars(reference.LOSSES[name])
        assert of_tests["optima"].keys() == set(loss.margins)
        assert set(of_tests.get("values", ())) == set(loss.parameters)


@pytest.mark.parametrize(("loss", "margin"), few(FORMULATIONS, "ww"))
def test_optima_of_digits(loss: str, margin: float) -> None:
    X, labels = digits()
    for C, optimum in zip(reference.OPTIMA_AT, reference.LOSSES[loss].optima[margin], strict=True):
        model = fit(X, labels, margin=margin, C=C, **of_loss(loss), **exactly(loss))
        assert_encloses(model.result, optimum, 1e-8)  # the figures have nine digits


@pytest.fixture(scope="module")
def real_rows(data_folder: Path) -> dict[str, tuple[Any, Any]]:
    """The first rows of the data sets, and their labels."""
    found = {}
    for name, n in ROWS.items():
        text = bz2.decompress((data_folder / f"{name}.bz2").read_bytes()).splitlines(keepends=True)[:n]
        found[name] = load_svmlight_file(io.BytesIO(b"".join(text)))
    return found


@pytest.mark.parametrize("name", few(OPTIMA, "dna.scale"))
@pytest.mark.parametrize(("loss", "margin"), OF_SETS)
def test_optima_of_real_rows(
    real_rows: dict[str, tuple[Any, Any]], name: str, loss: str, margin: float
) -> None:
    X, labels = real_rows[name]
    for C, optimum in zip((1.0, 1 / 16), OPTIMA[name][loss, margin], strict=False):
        model = fit(X, labels, loss=loss, margin=margin, C=C, **OF_TABLE.get(loss, {}), **exactly(loss))
        assert_encloses(model.result, optimum, 1e-8)  # the figures have nine digits
