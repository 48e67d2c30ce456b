"""The text of the setting: what it means, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
from helpers import FEATURES
from helpers import plain_fit as fit

from streamsvm.errors import SettingsError
from streamsvm.settings.fit import Settings
from streamsvm.transforms import TRANSFORMS, parse_transforms, records_of, transforms_from


def test_every_transform_can_be_written_and_recorded() -> None:
    text = "counts,normalize=50,log1p,binarize,hash=6,idf,df=-0.5,center,scale=maxabs,clip=3,l2,bias=2"
    text = text.replace("clip", f"select={FEATURES},clip")
    names = set()
    for chain in text, "fourier=64:gamma=0.5", "l2,fourier=7":
        transforms = parse_transforms(chain)
        assert [each.name for each in transforms] == [step.split("=")[0] for step in chain.split(",")]
        assert transforms_from(records_of(transforms)) == transforms
        names |= {each.name for each in transforms}
    assert names == TRANSFORMS.keys()
    assert parse_transforms(" log1p , l2 ") == parse_transforms("log1p,l2")
    assert parse_transforms(None) == []


def test_a_list_stands_for_its_texts_with_commas() -> None:
    assert Settings(transform=["idf", "l2"]).transform == Settings(transform="idf,l2").transform == "idf,l2"
    with pytest.raises(SettingsError, match="transform must be text"):
        Settings(transform=3)  # type: ignore[arg-type]


REFUSED = [
    ("scale=foo", "'scale=foo' must be scale=std or scale=maxabs"),
    ("scale", "'scale' must be scale=std or scale=maxabs"),
    ("normalize=0", "'normalize=0' must be normalize=target with a number above 0"),
    ("normalize=", "'normalize=' must be normalize=target"),
    ("clip", "'clip' must be clip=v with a number v above 0"),
    ("clip=inf", "'clip=inf' must be clip=v"),
    ("df", "'df' must be df=power with a number"),
    ("df=nan", "'df=nan' must be df=power"),
    ("idf=2", "'idf=2' must be idf, without a value"),
    ("hash=0", "'hash=0' must be hash=bits with a number from 1 to 31"),
    ("hash=99999999", "'hash=99999999' must be hash=bits"),
    ("bias=-1", "'bias=-1' must be bias=value with a number above 0"),
    ("select", "'select' must be select=FILE with one feature per line"),
    ("counts=yes", "'counts=yes' must be counts, or counts=no"),
    ("log1", "there is no transform 'log1'; did you mean log1p?"),
    ("zzz", "there is no transform 'zzz'; the transforms are counts, normalize, log1p"),
    *((f"fourier{text}", f"'fourier{text}' must be fourier=D[:gamma=x]")
      for text in ("", "=0", "=2000000", "=8:gama=1", "=8:gamma=0", "=8:gamma", "=8:gamma=")),
    *((text, "fourier must be last, and cannot be combined with bias")
      for text in ("fourier=8,l2", "fourier=8,bias", "bias,fourier=8", "fourier=8,fourier=8")),
    ("", "there is no transform ''"),
    ("log1p,", "there is no transform ''"),
    ("bias,scale=std", "bias must be last, because scale would change the constant"),
    ("l2,counts", "counts must be first"),
    ("idf,hash=4", "hash must come before idf"),
    ("hash=4,hash=5", "hash can be applied only once"),
    (",".join(["l2"] * 17), "at most 16 transforms are allowed, but 17 are set"),
]  # fmt: skip


def test_what_is_not_a_transform_is_refused() -> None:
    for text, message in REFUSED:
        with pytest.raises(SettingsError, match=re.escape(message)) as caught:
            fit(np.eye(4), list("abab"), transform=text)
        assert caught.value.setting == "transform"
