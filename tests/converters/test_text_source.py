"""Text as a source of batches: reading continues from any place, but only in unchanged text."""

from __future__ import annotations

import functools
import gzip
import hashlib
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from streamsvm_converters import TextSource

from streamsvm.errors import InputError

SMALL = 2**16  # memory with which text is parsed in blocks of 256 bytes


def text_of(n: int, seed: int = 0, labels: int = 40) -> bytes:
    rng = np.random.default_rng(seed)
    lines = []
    for i in range(n):
        label = rng.integers(min(labels, 2 + i // 4))
        indices = np.sort(rng.choice(np.arange(1, 50 + i), size=rng.integers(5), replace=False))
        lines.append(f"L{label} " + " ".join(f"{f}:{rng.normal():.4f}" for f in indices))
    return ("\n".join(lines) + "\n").encode()


def draw(stream: TextSource, place=None, classes=()) -> list[tuple]:
    """Return all batches: rows as lists, the classes known after them, the place where they end.

    The last one has no rows.
    """
    known, drawn = list(classes), []
    for rows, new, behind in stream.batches(place, known[:]):
        known += new
        ends = rows.indptr.tolist()
        pairs = list(zip(rows.indices.tolist(), rows.data.tolist(), strict=True))
        each = [
            (known[label] if label >= 0 else None, pairs[a:b])
            for label, a, b in zip(rows.labels.tolist(), ends, ends[1:], strict=False)
        ]
        drawn.append((each, known[:], behind))
    return drawn


def plain(line: str) -> tuple:
    label, *pairs = line.split()
    return label, sorted((int(f) - 1, float(np.float32(x))) for f, x in (pair.split(":") for pair in pairs))


@pytest.mark.parametrize("packing", ["plain", "two streams", "bom", "no last newline"])
def test_continuing_from_any_place_gives_the_same_rows_and_counts(tmp_path: Path, packing: str) -> None:
    lines = text_of(300).decode().splitlines()
    for i in range(3, 300, 9):  # rows that are repaired, and that are left out
        lines[i] = "L0 3:1 2:1" if i % 2 else "L0 oops"
    lines += ["L0 oops"] * 60  # more than a block, without a row after them
    text, more = ("\n".join(lines) + "\n").encode(), text_of(120, seed=1)
    pack = {
        "plain": lambda t: t, "two streams": lambda t: gzip.compress(t[:500]) + gzip.compress(t[500:]),
        "bom": lambda t: b"\xef\xbb\xbf" + t, "no last newline": lambda t: t[:-1],
    }[packing]  # fmt: skip
    (tmp_path / "a").write_bytes(pack(text))
    (tmp_path / "b").write_bytes(more)
    inputs = [tmp_path / "a", tmp_path / "b"]
    stream = TextSource(inputs, memory=SMALL, index_base=1, on_error="fix")
    batches = draw(stream)
    assert len(batches) > 20
    good = [line for line in (text + more).decode().splitlines() if not line.endswith("oops")]
    assert [row for each, *_ in batches for row in each] == [plain(line) for line in good]
    *_, (_, classes, end) = batches
    assert (stream.summary(end)["skipped"], stream.summary(end)["repaired"]) == (
        lines.count("L0 oops"), lines.count("L0 3:1 2:1")
    )  # fmt: skip
    last_of_a = max(n for n, (*_, place) in enumerate(batches) if place["place"]["source"] == 0)
    for number in [*range(0, len(batches), 3), last_of_a, len(batches) - 1]:
        _, known, place = batches[number]
        for memory in (SMALL, 2 * SMALL):  # in blocks of another size
            again = TextSource(inputs, memory=memory, index_base=1, on_error="fix")
            rest = draw(again, place, known)
            expected = [row for each, *_ in batches[number + 1 :] for row in each]
            assert [row for each, *_ in rest for row in each] == expected
            if rest:
                assert rest[-1][1:] == (classes, end)


@pytest.mark.filterwarnings("ignore:.*c is empty")
def test_a_place_counts_the_text_before_it_and_nothing_after_it(tmp_path: Path) -> None:
    texts = text_of(200), text_of(80, seed=1), b""
    paths = [tmp_path / name for name in "abc"]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text)
    stream = TextSource(paths, memory=SMALL)
    whole = [
        {"name": path.name, "size": len(text), "sha256": hashlib.sha256(text).hexdigest()}
        for path, text in zip(paths, texts, strict=True)
    ]
    assert (stream.sources(None), stream.summary(None)["nnz"]) == ([], 0)
    lines = [text.splitlines(keepends=True) for text in texts]
    labels = [line.split()[0].decode() for each in lines for line in each]
    batches = draw(stream)
    nnz, done, line = 0, 0, [0, 0, 0]
    for each, known, place in batches[:-1]:
        nnz += sum(len(pairs) for _, pairs in each)
        number = place["place"]["source"]
        done, line[number] = done + len(each), line[number] + len(each)
        before = b"".join(lines[number][: line[number]])
        assert place["place"] == {
            "source": number, "text": len(before), "line": line[number], "row": done,
            "sha256": hashlib.sha256(before).hexdigest(),
        }  # fmt: skip
        assert known == list(dict.fromkeys(labels[:done]))
        assert stream.sources(place) == whole[:number]
        assert stream.summary(place)["nnz"] == nnz
        assert stream.summary(place)["bytes_read"] == sum(source["size"] for source in whole[:number])
    *_, end = batches[-1]
    assert stream.sources(end) == whole
    assert stream.summary(end)["bytes_read"] == sum(map(len, texts))
    paths[1].write_bytes(texts[1] + b"L0 7:1\n")  # only the last input with text may be longer
    assert draw(stream, end, batches[-1][1])[0][0] == [("L0", [(7, 1.0)])]


def test_an_error_names_its_line_after_continuing(tmp_path: Path) -> None:
    lines = text_of(200).decode().splitlines()
    (tmp_path / "a").write_text("\n".join(lines))
    _, known, place = draw(TextSource([tmp_path / "a"], memory=SMALL))[3]
    lines[190] = "L0 1:1 oops"
    (tmp_path / "a").write_text("\n".join(lines))
    for given in (), (place, known):
        with pytest.raises(InputError, match="line 191, column 8"):
            draw(TextSource([tmp_path / "a"], memory=SMALL), *given)


@pytest.mark.parametrize("packed", [False, True])
def test_changed_text_is_refused(tmp_path: Path, packed: bool) -> None:
    pack = functools.partial(gzip.compress, mtime=0) if packed else bytes  # the same in any second
    text, more = text_of(100), text_of(100, seed=1)
    paths = tmp_path / "a", tmp_path / "b"

    def write(first: bytes, second: bytes) -> None:
        for path, each in zip(paths, (first, second), strict=True):
            path.write_bytes(pack(each))

    write(text, more)
    batches = draw(TextSource(paths, memory=SMALL))
    (_, early, in_first), (_, late, in_second) = batches[3], batches[-3]
    assert (in_first["place"]["source"], in_second["place"]["source"]) == (0, 1)
    altered = text.replace(b"1", b"2", 1)
    for first, second, place, known, name in (
        (altered, more, in_first, early, "a"),
        (text[:50], more, in_first, early, "a"),
        (altered, more, in_second, late, "a"),
        (text, more.replace(b"1", b"2", 1), in_second, late, "b"),
    ):
        write(first, second)
        with pytest.raises(InputError, match=f"{name} ha(s|ve) changed since the run learned"):
            draw(TextSource(paths, memory=SMALL), place, known)
    write(text, more + b"L0 1:1\n")  # text after the place may change
    assert draw(TextSource(paths, memory=SMALL), in_second, late)[-2][0][-1] == ("L0", [(1, 1.0)])
    stream = TextSource(paths, memory=SMALL)
    paths[0].unlink()
    with pytest.raises(InputError, match="a cannot be read: No such file or directory; check the path"):
        draw(stream, in_second, late)


def test_rows_in_a_pipe_do_not_wait_for_further_rows(tmp_path: Path) -> None:
    pieces = [b"a 1:1\nb 2:1\n", b"a 3:", b"1\nb 4", b":1\na 5:1"]
    os.mkfifo(tmp_path / "pipe")
    drawn = [threading.Event() for _ in pieces]

    def write() -> None:
        with (tmp_path / "pipe").open("wb", buffering=0) as pipe:
            for n, piece in enumerate(pieces):
                pipe.write(piece)
                if n != 1:  # which completes no line
                    drawn[n].wait(60)

    writer = threading.Thread(target=write)
    writer.start()
    sizes = []
    for rows, *_ in TextSource([tmp_path / "pipe"]).batches(None, []):
        sizes.append(rows.n_rows)
        drawn[{1: 0, 2: 2}.get(len(sizes), 3)].set()
    writer.join()
    assert sizes == [2, 1, 1, 1, 0]


def test_given_classes_and_width(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("b 1:1 5:2\na 2:3\nc 1:1\n")
    stream = TextSource([tmp_path / "a"], classes=["a", "b"], n_features=3, index_base=1, unseen_label="keep")
    (each, known, _), (*_, end) = draw(stream, classes=["a", "b"])
    assert each == [("b", [(0, 1.0)]), ("a", [(1, 3.0)]), (None, [(0, 1.0)])]
    assert known == ["a", "b"]
    assert stream.summary(end)["unseen_features"] == stream.summary(end)["unseen_labels"] == 1


def test_a_record_gives_the_same_source(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(text_of(100))
    stream = TextSource([tmp_path / "a"], memory=SMALL, index_base=1, on_error="skip", dtype="float64")
    assert draw(TextSource.from_record(stream.record())) == draw(stream)
    assert stream.resumable
    assert not TextSource(["-"]).resumable
    assert not TextSource([tmp_path / "a", "/dev/null"]).resumable
