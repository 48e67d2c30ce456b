"""`streamsvm online` as a user runs it: its classes, its features, and what `--like` gives."""

from __future__ import annotations

import json
import lzma
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from command_line import succeeds
from streamsvm_cli.online import text_like

from streamsvm.errors import InputError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the digits as a store, and some of them as text."""
    path = tmp_path_factory.mktemp("online")
    packed = resources.files("streamsvm_cli").joinpath("digits", "digits.train.xz").read_bytes()
    (path / "train").write_bytes(lzma.decompress(packed))
    (path / "few").write_bytes(b"".join((path / "train").read_bytes().splitlines(keepends=True)[:30]))
    succeeds("convert", "train", "--out", "train.h5", cwd=path)
    return path


def coef(run: Path) -> bytes:
    return (run / "model/coef.npy").read_bytes()


def test_classes_from_a_list_or_a_file(folder: Path, tmp_path: Path) -> None:
    classes = [*map(str, range(11, -1, -1))]
    (tmp_path / "classes").write_text("\n".join(classes) + "\n")
    for given in ("classes", ", ".join(classes)):
        succeeds("online", folder / "few", "--classes", given, "--out", "run", "--force", cwd=tmp_path)
        assert json.loads((tmp_path / "run/model/model.json").read_text())["classes"] == classes[::-1]


@pytest.fixture(scope="module")
def likes(folder: Path) -> Path:
    """What `--like` may name beside the store, which counts from 1: models, of a hash too."""
    succeeds("online", "few", "--out", "from-0", cwd=folder)
    succeeds("online", "few", "--out", "hashed", "--transform", "hash=8", cwd=folder)
    return folder


def test_what_options_and_like_say_together(likes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(likes)
    for like, options, expected in [  # features, index base and transforms; or a message
        ("train.h5", {}, (64, 1, None)),
        ("train.h5", {"index_base": 0}, "contradicts train.h5, whose indices start at 1; leave index_base="),
        ("from-0", {}, (65, 0, None)),
        ("hashed", {}, (None, None, "hash=8,bias=0.3")),
        ("hashed", {"transform": "hash=8,l2"}, (None, None, "hash=8,l2")),
        ("hashed", {"transform": "hash=9"}, "with hash=8, unlike the transform; use transform='hash=8', or"),
    ]:
        settings: dict[str, Any] = {"transform": None} | options
        index_base = settings.pop("index_base", None)
        if isinstance(expected, str):
            with pytest.raises(InputError, match=re.escape(expected)):
                text_like(like, index_base, settings)
            continue
        reading = text_like(like, index_base, settings)
        assert (reading.get("n_features"), reading.get("index_base"), *settings.values()) == expected
        assert reading["classes"] == [*map(str, range(10))]


def test_hashed_features_keep_the_numbers_in_the_text(likes: Path) -> None:
    """With an index base, too."""
    options = ("--transform", "hash=8", "--index-base", 1)
    succeeds("online", "few", "--out", "based", *options, cwd=likes)
    assert coef(likes / "based") == coef(likes / "hashed")
