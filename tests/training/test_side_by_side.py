"""Trainings side by side: the models of each alone, blocks that are read once, and an end for all."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases import few
from helpers import make_problem, make_store

from streamsvm import plan
from streamsvm.data.memory_plan import POLICY
from streamsvm.errors import Interrupted, PlanError, RunError
from streamsvm.settings import Interval, Settings
from streamsvm.store import open_store
from streamsvm.store.shared import Reads
from streamsvm.training.runs import fit_store, fit_to_store
from streamsvm.training.side_by_side import arrange, train_side_by_side
from streamsvm.training.trainer import Callbacks
from streamsvm.transforms import parse_transforms

N, D, K, BLOCK = 400, 20, 4, 60
BLOCKS = -(-N // BLOCK)
SAMPLE = 1024  # rows of a sample of the data
PASSES = 3
DIFFERENT = [
    {"hold_out": "1/3"},
    {"hold_out": "2/3"},
    {"loss": "cs", "hold_out": "3/3"},
    {"loss": "logistic"},
    {"transform": "l2", "C_path": "0.5,1"},
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X, labels = make_problem(N, D, K)
    return make_store(tmp_path_factory.mktemp("store") / "s.h5", X, labels)


@pytest.fixture
def reads(store: Path, monkeypatch: pytest.MonkeyPatch) -> Counter:
    """How often each range of rows was read."""
    counts: Counter = Counter()
    with open_store(store) as opened:
        kind, original = type(opened), type(opened).rows_of

    def rows_of(each: Any, ranges: Any) -> Any:
        counts.update(ranges)
        return original(each, ranges)

    monkeypatch.setattr(kind, "rows_of", rows_of)
    return counts


def settings_of(**different: Any) -> Settings:
    common: dict[str, Any] = {"C": 0.1, "passes": PASSES, "block_rows": BLOCK, "gap": "none"}
    return Settings(**common, **different)


def training(store: Path, out: Path, settings: Settings) -> Callable[[Reads, Callbacks], Any]:
    def train(reads: Reads, callbacks: Callbacks) -> Any:
        every = Interval("1 blocks")
        return fit_store(store, out, settings, every=every, resume=True, callbacks=callbacks, reads=reads)

    return train


def together(store: Path, folder: Path, callbacks: Callbacks = Callbacks()) -> list[Any]:  # noqa: B008
    return train_side_by_side(
        [
            (str(at), training(store, folder / str(at), settings_of(**each)))
            for at, each in enumerate(DIFFERENT)
        ],
        callbacks,
    )


def check_models(store: Path, folder: Path) -> None:
    """Each has the bytes of the training alone."""
    for at, each in enumerate(DIFFERENT):
        training(store, folder / f"alone-{at}", settings_of(**each))(Reads(), Callbacks())
        for name in ("coef.npy", "model.json"):
            bytes_of = [(folder / run / "model" / name).read_bytes() for run in (str(at), f"alone-{at}")]
            assert bytes_of[0] == bytes_of[1]


def test_models_are_those_of_each_alone_and_blocks_are_read_once(
    store: Path, tmp_path: Path, reads: Counter
) -> None:
    results = together(store, tmp_path)
    assert [result.settings["loss"] for result in results] == ["ww", "ww", "cs", "logistic", "ww"]
    # In every pass, and to score after it.
    blocks = {(begin, min(begin + BLOCK, N)): 2 * PASSES for begin in range(0, N, BLOCK)}
    assert {block: reads[block] for block in blocks} == blocks
    check_models(store, tmp_path)


@pytest.mark.parametrize("questions", few([1, 7, 40, 41, 42, 43], 7, 41, 43))
def test_all_stop_and_go_on(store: Path, tmp_path: Path, questions: int) -> None:
    left = questions

    def stop() -> bool:
        nonlocal left
        left -= 1
        return left == 0

    with pytest.raises(Interrupted):
        together(store, tmp_path, Callbacks(stop=stop))
    together(store, tmp_path)
    check_models(store, tmp_path)


def test_those_that_have_come_further_share_the_rest(store: Path, tmp_path: Path, reads: Counter) -> None:
    """One was stopped in its second pass: it waits for the others, and shares what is left."""
    blocks = 0

    def stop() -> bool:
        nonlocal blocks
        blocks += 1
        return blocks == BLOCKS + 2

    different = [{"loss": loss, "seed": 1} for loss in ("ww", "cs", "wws")]
    trainings = [
        (str(at), training(store, tmp_path / str(at), settings_of(**each)))
        for at, each in enumerate(different)
    ]
    with pytest.raises(Interrupted):
        trainings[1][1](Reads(), Callbacks(stop=stop))
    reads.clear()
    train_side_by_side(trainings, Callbacks())
    assert sum(count for (begin, end), count in reads.items() if end - begin <= BLOCK) == PASSES * BLOCKS


def test_an_error_of_one_stops_all_and_is_raised(store: Path, tmp_path: Path) -> None:
    fine = training(store, tmp_path / "fine", settings_of(hold_out="1/3"))
    began = threading.Event()

    def fails(reads: Reads, callbacks: Callbacks) -> None:
        with reads.of(open_store(store)) as opened:
            opened.rows(0, BLOCK)
            began.set()
        raise RunError("the disk is full")

    stopped = []

    def watched(reads: Reads, callbacks: Callbacks) -> Any:
        try:
            return fine(reads, callbacks)
        except Interrupted:
            stopped.append(True)
            raise

    with pytest.raises(RunError, match="the disk is full"):
        train_side_by_side([("a", watched), ("b", fails), ("c", fails)], Callbacks())
    assert began.is_set()
    assert stopped == [True]


def test_callbacks_are_called_by_one_at_a_time(store: Path, tmp_path: Path) -> None:
    inside, events, stages = threading.Semaphore(1), [], []

    def alone(call: Callable[..., None]) -> Callable[..., None]:
        def checked(*arguments: Any) -> None:
            assert inside.acquire(blocking=False)
            try:
                call(*arguments)
            finally:
                inside.release()

        return checked

    report = alone(events.append)
    progress = alone(lambda stage, done, total: stages.append((stage, done)))
    together(store, tmp_path, Callbacks(report, progress))
    passes = Counter(event["trial"] for event in events if event["event"] == "pass")
    assert passes == {str(at): PASSES for at in range(len(DIFFERENT))}
    of_passes = [each for each in stages if each[0].startswith("pass")]
    assert len(set(of_passes)) == len(of_passes) == PASSES * BLOCKS  # of one training


def candidates_of(store: Path, memory: int, *different: dict[str, Any]) -> list[tuple[Settings, Any]]:
    candidates = []
    with open_store(store) as opened:
        for each in different:
            settings = Settings(memory=memory, gap="none", **each)
            asked = parse_transforms(settings.transform)
            candidates.append(
                (settings, fit_to_store([], opened, asked, settings, Callbacks(), 1).transforms)
            )
    return candidates


def test_as_many_as_memory_allows(store: Path) -> None:
    different = ({}, {"loss": "cs"}, {"transform": "l2"})
    counts = []
    for memory in (2**18, 2**19, 2**20, 2**22, 2**31):
        found = arrange([store], candidates_of(store, memory, *different), 12, POLICY)
        assert found.memory * found.side_by_side <= memory
        counts.append(found.side_by_side)
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (1, 12)
    assert 1 < counts[-2] < 12
    # As many each time: 10 and 10, and not 16 and 4.
    assert arrange([store], candidates_of(store, 2**31, *different), 20, POLICY).side_by_side == 10
    with pytest.raises(PlanError):
        arrange([store], candidates_of(store, 1000, {}), 3, POLICY)


def test_splits_by_rows_have_room_for_their_weights_or_a_cluster(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s.zarr", *make_problem(20, 20_000, K))
    by_rows = {"split": "rows", "splits": 4, "C": 1.0, "average": False}
    with pytest.raises(PlanError, match="weights of its own") as caught:
        arrange([store], candidates_of(store, 2**23, by_rows), 3, POLICY)
    for memory in (caught.value.needed_memory, 2**25, 2**31):
        assert memory is not None
        found = arrange([store], candidates_of(store, memory, by_rows), 3, POLICY)
        plan(store, memory=found.memory, **by_rows)
    assert found.side_by_side == 3
    assert arrange([store], candidates_of(store, 2**23, by_rows), 3, POLICY, cluster=True)


def test_blocks_of_different_settings_begin_alike(tmp_path: Path, reads: Counter) -> None:
    """With a feature more, memory alone would cut shorter blocks."""
    n = 60_000
    X, labels = make_problem(n, D, K)
    path = make_store(tmp_path / "s.h5", X, labels)
    candidates = candidates_of(path, 2**25, {"passes": 1}, {"passes": 1, "transform": "bias"})
    found = arrange([path], candidates, 2, POLICY)
    assert found.side_by_side == 2
    assert found.block_rows is not None
    trainings = [
        (str(at), training(path, tmp_path / str(at), found.of(settings)))
        for at, (settings, _) in enumerate(candidates)
    ]
    reads.clear()
    train_side_by_side(trainings, Callbacks())
    blocks = sorted(block for block in reads if block[1] - block[0] > SAMPLE)
    assert len(blocks) > 1
    assert all(reads[block] == 1 for block in blocks)
    assert [0, *(end for _, end in blocks)] == [*(begin for begin, _ in blocks), n]
