"""The staging folder of an output contains nothing but files of the conversion."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamsvm_converters.staging import staging_folder, staging_path

from streamsvm.errors import StoreError


def test_a_link_in_place_of_the_staging_folder_is_not_emptied(tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "s.zarr", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "thesis").write_text("a file of the user")
    staging_path(out).symlink_to(elsewhere)
    with (
        pytest.raises(StoreError, match="a symbolic link, which is not followed here"),
        staging_folder(out, False),
    ):
        pass
    assert (elsewhere / "thesis").read_text() == "a file of the user"
