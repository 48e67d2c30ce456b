"""The text parser, against plain Python: the same rows bit for bit, or an error at the same place.

The first four bytes choose options; the rest is text, cut into several inputs at each `NEXT_INPUT`.
"""

from __future__ import annotations

import math
import random
import re
import struct
import warnings
from collections.abc import Callable
from fractions import Fraction

from fuzz.plain_parser import MAX_INDEX, Kept, Row, parse, settle, split_lines
from fuzz.workplace import folder
from streamsvm_converters.kinds.libsvm import LibsvmReader
from streamsvm_converters.kinds.options import ReadOptions

from streamsvm.errors import InputError, PlanError

warnings.filterwarnings("ignore", message=".* is empty")  # of one input among several

NEXT_INPUT = b"\x1c\x1c"
CLASSES = ("1", "-1", "2.5", "a")
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
PLACE = re.compile(r"/(\d+)\.svm, line (\d+)")
COLUMN = re.compile(r", column (\d+): ")
LINE_BYTES = re.compile(r" has (\d+) bytes, too many")


def run(data: bytes) -> None:
    if len(data) < 4:
        return
    flags, cut, size, last = data[0], data[1], data[2], data[3]
    on_error = ("raise", "skip", "fix", "fix")[flags & 3]
    dtype = "float32" if flags & 4 else "float64"
    lowest = flags >> 3 & 1
    last_index = last if flags & 16 else None
    classes = CLASSES if flags & 32 else None
    block = 256 + (size & 127 if flags & 64 else 4 * size)
    threads = 2 if size & 128 else 1
    memory = 32 * (threads + 4) * block  # that makes blocks of this size
    texts = data[4:].split(NEXT_INPUT)[:4]
    if flags & 128:
        texts = [text.replace(b"\n", b"\r\n") for text in texts]
    if cut:  # push the text along the block
        texts[0] = b"#" * (cut - 1) + b"\n" + texts[0]
    place = folder("text")
    paths = []
    for number, text in enumerate(texts):
        paths.append(place / f"{number}.svm")
        paths[-1].write_bytes(text)
    options = ReadOptions(
        dtype=dtype, index_base=lowest, unseen_label="keep", on_error=on_error, memory=memory, threads=threads
    )
    known = None if last_index is None else last_index - lowest + 1
    reader = LibsvmReader(paths, options, classes=classes, known_features=known)
    expected = [
        (number, row)
        for number, text in enumerate(texts)
        for row in parse(text, lowest=lowest, fix=on_error == "fix", dtype=dtype)
    ]
    kept = [settle(row, dtype, MAX_INDEX if last_index is None else last_index) for _, row in expected]
    for (_, row), left in zip(expected, kept, strict=True):
        if row.fault is None and not math.isfinite(left.norm2):
            row.fault = -1  # at its label, of which the reference has forgotten the place
    found: list[tuple] = []
    refused: InputError | PlanError | None = None
    try:
        for rows, numbers in reader:
            for row in range(rows.n_rows):
                span = slice(rows.indptr[row], rows.indptr[row + 1])
                found.append(
                    (
                        int(numbers[row]),
                        int(rows.labels[row]),
                        (rows.indices[span] + lowest).tolist(),
                        [float(value).hex() for value in rows.data[span]],
                        float(rows.norm2[row]).hex(),
                    )
                )
    except (InputError, PlanError) as error:
        refused = error
    if isinstance(refused, PlanError):
        _check_memory(str(refused), texts, classes, memory)
        return
    if refused is not None:
        assert on_error == "raise", refused
        _check_fault(str(refused), expected)
        return
    faults = [row for _, row in expected if row.fault is not None]
    assert on_error != "raise" or not faults, f"line {faults[0].line} is faulty, and was read"
    wanted, labels = _wanted(expected, kept, classes)
    for have, want in zip(found, wanted, strict=False):
        assert have == want, f"read {have}, not {want}"
    assert len(found) == len(wanted)
    counts = reader.counts
    good = [(row, left) for (_, row), left in zip(expected, kept, strict=True) if row.fault is None]
    assert counts.skipped == len(faults)
    assert len(counts.first_errors) == min(5, len(faults))
    assert counts.rows == len(good)
    assert counts.qids == sum(row.qids for row, _ in good)
    assert counts.repaired == sum(row.repaired for row, _ in good) or faults  # else also some of those
    assert counts.nnz == sum(len(left.values) for _, left in good)
    if not faults:
        assert counts.explicit_zeros == sum(left.zeros for _, left in good)
        assert counts.unseen_features == sum(left.unseen for _, left in good)
    indices = [index for row, _ in good for index, _ in row.pairs]
    assert reader.largest == max(indices, default=-1)
    assert reader.smallest == min(indices, default=MAX_INDEX) or not indices
    if classes is None:
        assert reader.labels() == labels


def _wanted(
    expected: list[tuple[int, Row]], kept: list[Kept], classes: tuple[str, ...] | None
) -> tuple[list[tuple], list[str]]:
    """The rows as `run` lists them, and the labels in order of appearance."""
    labels = list(classes or ())
    wanted = []
    for number, ((_, row), left) in enumerate(zip(expected, kept, strict=True)):
        if row.fault is not None:
            continue
        name = row.label if row.label in (classes or ()) else class_of(row.label)
        if name not in labels and classes is None:
            labels.append(name)
        code = labels.index(name) if name in labels else -1
        values = [value.hex() for value in left.values]
        wanted.append((number, code, left.indices, values, left.norm2.hex()))
    return wanted, labels


def class_of(label: str) -> str:
    """The class of a label: by the fraction that it is, if it is a number."""
    value = float(label) if NUMBER.fullmatch(label) else math.inf
    if not math.isfinite(value):
        return label
    if value == 0:  # however small
        return "0"
    return str(round(Fraction(label))) if value % 1 == 0 else str(value)


def _check_fault(message: str, expected: list[tuple[int, Row]]) -> None:
    """The first fault is the one that is reported, at its column."""
    number, row = next((number, row) for number, row in expected if row.fault is not None)
    place = PLACE.search(message)
    assert place is not None, message
    assert (int(place[1]), int(place[2])) == (number, row.line), f"{message}; expected line {row.line}"
    column = COLUMN.search(message)
    assert column is not None, message
    assert row.fault in (int(column[1]), -1), f"{message}; expected column {row.fault}"
    assert "\n" not in message


def _check_memory(message: str, texts: list[bytes], classes: tuple[str, ...] | None, memory: int) -> None:
    """Only a line or a set of labels that truly is too large may be refused."""
    place = PLACE.search(message)
    assert place is not None, message
    length = LINE_BYTES.search(message)
    if length is None:
        assert classes is None
        assert "different labels, too many" in message
        return
    text = texts[int(place[1])]
    lines = text.split(b"\n")
    assert int(length[1]) == len(lines[int(place[2]) - 1]), message
    assert 24 * (int(length[1]) + 1) > memory, message
    assert len(split_lines(text)) >= int(place[2])


def mutate(data: bytes, max_size: int, seed: int, random_bytes: Callable[[bytes, int], bytes]) -> bytes:
    """Any change, or pairs put in that are written well, or nearly so, in digits of any number."""
    chance = random.Random(seed)
    if len(data) < 4 or chance.random() < 0.5:
        return random_bytes(data, max_size)
    at = chance.randrange(4, len(data) + 1)
    return (data[:at] + any_pairs(chance) + data[at:])[:max_size]


def any_pairs(chance: random.Random) -> bytes:
    def digits(least: int, most: int) -> str:
        kind = chance.random()
        count = chance.randint(least, most)
        if kind < 0.2:
            return chance.choice("09") * count
        return "".join(chance.choice("0123456789") for _ in range(count))

    pairs, index = [], 0
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        index += chance.choice((1, 1, 1, 9, 1000, 10**6, 0, -1))
        number = chance.choice(("", "", "", "-", "+")) + digits(0, chance.choice((1, 3, 9, 20)))
        if chance.random() < 0.7:
            number += "." + digits(0, chance.choice((1, 6, 9, 17, 40)))
        if chance.random() < 0.15:
            number += chance.choice("eE") + chance.choice(("", "-", "+")) + digits(0, 3)
        name = chance.choice((str(index), str(index), str(index), digits(1, 20)))
        gap = chance.choice((" ", " ", " ", " ", "  ", "\t", "\r\n1 ", "\n1 ", "\n", "#", ""))
        pairs.append(f"{name}:{number}{gap}")
    return chance.choice(("", " ", "\n1 ")).encode() + "".join(pairs).encode()


def seeds() -> list[bytes]:
    """Texts to begin with: what is usual, and each kind of oddity."""
    options = [struct.pack("4B", flags, 0, 0, 9) for flags in (0, 1, 2, 6, 9, 20, 37, 65, 130, 255)]
    texts = [
        b"1 1:0.5 3:2\n-1 2:1e-1\n",
        b"\xef\xbb\xbf# a header\r\n\r\n  \t \n+1 qid:7 1:0.5\t3:2 # c: 9:9\r\n\t-1   2:1e-1  \nspam#1:1\n",
        b"a 3:1 1:2 3:.5 2:4\nb 1:1\nc 1:x\nd 2:1 2:-1\ne 5:1 4:1 3:1 2:1 1:1 0:0\n",
        b"1 1:1e999 2:1e-999 3:3.4028235677973366e38 4:9007199254740993 5:1.7976931348623159e308\n",
        b"1 1:0.1234567890123456 2:-12345678.12345678 3:123.1234567890123456 12345678:87654321\n",
        b"1 4611686018427387902:1 4611686018427387903:1\n0007 0000000000000000000000000000001:1\n",
        b"a 1:1" + NEXT_INPUT + b"\xef\xbb\xbfa 2:2" + NEXT_INPUT + NEXT_INPUT + b"b",
        b"\xc3\xa9 1:1\n\xe2\x82\xac 1:1\n\xf0\x9f\x98\x80 1:1\n\xff 1:1\n\xed\xa0\x80 1:1\n",
        b"1 1:123456789012345678901234567890e-25 2:0.000000000000000000000000000000001e35 3:5.e0 4:.5e+1\n",
        b"1 " + b" ".join(b"%d:%d.%d" % (n, n, n * n) for n in range(1, 120)) + b"\n",
        b"1 1:1\n" * 60 + b"2 2:2",
        b"1 " + b" ".join(b"%d:%d.%d7" % (n % 7, n, n * n) for n in range(90)),  # sums that are rounded
        b"1 1:1\n1 x\n" * 20,
    ]
    return [option + text for option in options for text in texts]


TOKENS = (
    *(b"1:1 ", b"\n", b"\r\n", b"#", b"qid:1", b"qid:-", b"\xef\xbb\xbf", b"\x1c\x1c", b"\t", b"\0", b":"),
    *(b"4611686018427387902:", b"4611686018427387903:", b"1e308", b"1e-324", b"nan", b"inf", b"0x1p3"),
    *(b"3.4028235677973366e38", b"9007199254740993", b"12345678.1234567890123456", b"1_0", b"\xc3\xa9"),
    *(b"2.4703282292062327e-324", b"1.7976931348623157e308", b"e+", b"E-", b"-.", b"+.5", b"5."),
    b"00000000000000000000",
    b"12345678901234567890",
)
