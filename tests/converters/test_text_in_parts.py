"""Text in parts: the rows, numbers and messages of the whole, wherever it is cut."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from streamsvm_converters.kinds.options import ReadOptions
from streamsvm_converters.kinds.parts import PartedReader
from streamsvm_converters.kinds.registry import open_reader
from streamsvm_converters.libsvm.parts import scan

from streamsvm.errors import InputError, PlanError

TEXT = (
    "\ufeff# a title\n1 1:1 2:2\n\n \t\n2 # none\r\n\r\n"
    "  # no row\n 3 3:1\n1 2:0.5 4:1 # end\n5 1:1\n#\n1 1:2"
)
N_ROWS = 6


def read(path: Path, options: ReadOptions, size: int) -> tuple[list[float], list[int], list[str]]:
    """Values, numbers of rows and labels, read by parts of so many bytes."""
    whole = open_reader([path], options)
    assert isinstance(whole, PartedReader)
    found = scan(path, 0, size, options.memory)
    values: list[float] = []
    numbers: list[int] = []
    labels: list[str] = []
    for part in found.parts:
        reader = open_reader([path], options, part=part)
        assert isinstance(reader, PartedReader)
        of_part: list[int] = []
        for rows, own in reader:
            values += rows.data.tolist()
            numbers += own.tolist()
            of_part += rows.labels.tolist()
        labels += [reader.labels()[code] for code in of_part]
        whole.add_part(part, reader.found())
    whole.check()
    assert sorted(set(labels)) == sorted(whole.labels())
    assert whole.counts.rows == len(numbers)
    return values, numbers, labels


@pytest.mark.parametrize("newline", [True, False])
@pytest.mark.parametrize("packed", [False, True])
def test_any_cut_gives_the_same_rows(tmp_path: Path, newline: bool, packed: bool) -> None:
    path = tmp_path / "a"
    content = (TEXT + "\n" * newline).encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    options = ReadOptions(memory=2**15)
    expected = [1, 2, 1, 0.5, 1, 1, 2], list(range(N_ROWS)), ["1", "2", "3", "1", "5", "1"]
    for size in (1, 10, 30, 10**6):
        assert read(path, options, size) == expected


def test_a_scan_says_where_parts_begin(tmp_path: Path) -> None:
    path = tmp_path / "a"
    lines = ["1 1:1", "# none", "2 2:1"] * 200
    path.write_text("\n".join(lines))
    found = scan(path, 3, 500, 2**15)
    assert found.n_rows == 400
    assert len(found.parts) > 4
    text = path.read_bytes()
    for part in found.parts:
        before = text[: part.begin].decode().split("\n")[:-1]
        assert part.line == len(before)
        assert part.row == sum(not line.startswith("#") for line in before)
        assert part.number == 3
    assert found.parts[0].begin == 0
    assert [part.end for part in found.parts] == [*(part.begin for part in found.parts[1:]), None]
    assert found.source.size == len(text)


def test_faults_name_the_line_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    lines = ["1 1:1", "", "2 2:1"] * 100
    lines[250] = "1 2:1 1:1"
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"a, line 251, column 7"):
        read(path, ReadOptions(memory=2**15), 400)
    lines[250] = "1 " + " ".join(f"{i}:1" for i in range(1, 900))
    path.write_text("\n".join(lines))
    with pytest.raises(PlanError, match=r"a, line 251 has \d+ bytes") as caught:
        read(path, ReadOptions(memory=2**15), 400)
    assert caught.value.needed_memory == 24 * (len(lines[250]) + 1)


def test_labels_of_all_parts_must_fit_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("\n".join(f"label-{i} 1:1" for i in range(400)))
    with pytest.raises(PlanError, match="different labels so far"):
        read(path, ReadOptions(memory=2**16), 1000)
    values, _, labels = read(path, ReadOptions(memory=2**20), 1000)
    assert len(labels) == 400
    np.testing.assert_array_equal(values, 1)
