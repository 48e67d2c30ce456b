"""The benchmarks' generator: deterministic, a prefix of its longer self, and distributed as it says."""

from __future__ import annotations

import importlib.util
import io
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from cases import few
from streamsvm_converters import convert

from streamsvm.store import open_store

pytestmark = pytest.mark.more

PROGRAM = Path(__file__).parents[2] / "benchmarks/generate.py"
SMALL = ("--features", 2000, "--classes", 5, "--nnz", 20, "--topic", 0.3, "--topic-words", 100)


spec = importlib.util.spec_from_file_location("generate", PROGRAM)
assert spec is not None
assert spec.loader is not None
program = importlib.util.module_from_spec(spec)


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    sys.modules[spec.name] = program  # where Numba looks for it; it caches what it compiles for scripts, too
    spec.loader.exec_module(program)


def generate(*words: object) -> bytes:
    """What the program prints."""
    printed = io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(PROGRAM), *map(str, words)])
        patch.setattr(sys, "stdout", types.SimpleNamespace(buffer=printed))
        program.main()
    return printed.getvalue()


def parse(text: bytes) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """Labels, features and values of each row."""
    rows = [line.replace(b":", b" ").split() for line in text.splitlines()]
    labels = np.array([int(row[0]) for row in rows])
    features = [np.array(row[1::2], dtype=np.int64) for row in rows]
    return labels, features, [np.array(row[2::2], dtype=np.float64) for row in rows]


def dense(text: bytes, width: int) -> tuple[np.ndarray, np.ndarray]:
    labels, features, values = parse(text)
    matrix = np.zeros((len(labels), width))
    for row, f, v in zip(matrix, features, values, strict=True):
        row[f - 1] = v
    return labels, matrix


@pytest.mark.more
def test_rows_depend_on_seed_part_and_number_alone() -> None:
    short, long = (generate("--rows", n, "--features", 50, "--nnz", 400) for n in (30, 2700))
    assert short.count(b"\n") == 30
    assert long.count(b"\n") == 2700  # more than a block has
    assert long.startswith(short)
    others = [generate("--rows", 30, *words) for words in ((), ("--seed", 1), ("--part", "test"))]
    assert len({line for text in others for line in text.splitlines()}) == 90


@pytest.mark.parametrize("suffix", few(["zarr", "h5"], "zarr"))
def test_the_store_is_that_of_the_text(tmp_path: Path, suffix: str) -> None:
    text, converted, direct = tmp_path / "text", tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    size = 8 * 20_000
    for out in (text, direct):
        generate("--size", size, "--out", out, *SMALL)
    convert([text], converted, shuffle=False, index_base=1, n_features=2000)
    with open_store(converted) as a, open_store(direct) as b:
        assert a.fingerprint == b.fingerprint
        assert size / 8 <= b.nnz
        assert 0 <= b.nnz - size / 8 < np.diff(b.indptr(b.n_rows - 1, b.n_rows))[0]  # the last row passes it


@pytest.mark.parametrize(("seed", "part"), few([(0, "train"), (0, "test"), (5, "train")], (0, "test")))
def test_rows_are_drawn_as_asked(seed: int, part: str) -> None:
    options = ("--nnz", 30, "--features", 5000, "--topic", 0, "--seed", seed, "--part", part)
    labels, features, values = parse(generate("--rows", 20_000, *options))
    lengths = np.array([len(f) for f in features])
    assert all((np.diff(f) > 0).all() for f in features)
    assert min(f[0] for f in features) >= 1
    assert max(f[-1] for f in features) <= 5000
    assert min(v.min() for v in values) > 0
    assert np.allclose([v @ v for v in values], 1, atol=1e-3)
    assert np.mean(lengths) == pytest.approx(30, rel=0.02)
    assert np.std(np.log(lengths)) == pytest.approx(0.6, rel=0.05)
    # Zipf's law: rows that hold the word of a rank, where that is seldom enough not to saturate.
    held = -np.sort(-np.bincount(np.concatenate(features), minlength=5001)[1:])
    ranks = np.arange(30, 300)
    assert np.polyfit(np.log(ranks), np.log(held[ranks - 1]), 1)[0] == pytest.approx(-1.1, abs=0.1)
    # Class sizes, by default by the square root of their rank.
    sizes = np.bincount(labels, minlength=50)
    expected = np.arange(1, 51) ** -0.5
    assert sizes / len(labels) == pytest.approx(expected / expected.sum(), rel=0.25)


def test_noise_changes_labels_alone() -> None:
    clean, noisy = (parse(generate("--rows", 5000, "--noise", noise, *SMALL)) for noise in (0, 0.3))
    assert all(np.array_equal(a, b) for a, b in zip(clean[1], noisy[1], strict=True))
    changed = clean[0] != noisy[0]
    assert changed.mean() == pytest.approx(0.3, abs=0.03)
    by = (noisy[0] - clean[0])[changed] % 5
    assert np.bincount(by, minlength=5)[1:] / len(by) == pytest.approx(np.full(4, 0.25), abs=0.05)


def test_the_test_part_has_the_topics_of_the_training_part() -> None:
    options = (*SMALL, "--noise", 0, "--class-exponent", 0)
    labels, matrix = dense(generate("--rows", 2000, *options), 2000)
    centres = np.stack([matrix[labels == c].mean(axis=0) for c in range(5)])
    test_labels, test = dense(generate("--rows", 1000, "--part", "test", *options), 2000)
    right = np.mean(np.argmax(test @ (centres - centres.mean(axis=0)).T, axis=1) == test_labels)
    assert right > 0.6  # of chance's 0.2
    elsewhere, _ = dense(generate("--rows", 1000, "--part", "test", "--seed", 1, *options), 2000)
    assert np.bincount(elsewhere).min() > 100  # even sizes
