"""Columns of the table that a model takes: as records, and as a transformer of scikit-learn."""

from __future__ import annotations

import itertools
from functools import partial
from operator import itemgetter, methodcaller
from typing import Any

import numpy as np

from streamsvm.base.label_values import as_number
from streamsvm.errors import ModelError, extra
from streamsvm.model.model import Model


def table_columns(model: Model, program: str) -> list[dict[str, Any]]:
    """Return the records of the columns (docs/formats.md), none if the model takes a matrix.

    Raises `ModelError`, which names `program`, for columns that are neither numbers nor categories.
    """
    columns: list[Any] = (model.record.get("encoding") or {"columns": []})["columns"]
    for column in columns:
        kind = "text" if isinstance(column, str) else "dates" if "date" in column else column["type"]
        if kind not in ("number", "category"):
            raise ModelError(f"{program} cannot encode columns of {kind}; export to streamsvm")
    return columns


def raw_transformer(model: Model) -> tuple[Any, np.ndarray | None]:
    """Make a fitted transformer of raw data, and return the column of its output that each feature is.

    It is a ``HashingVectorizer`` of texts or a ``ColumnTransformer`` of DataFrames, which has one transformer
    for all columns of a kind. It is None if the model takes a matrix. Categories that are numbers or booleans
    are compared as numbers, because a DataFrame may hold them as integers, floats or text.
    """
    if model.takes_texts and len((encoding := model.record["encoding"])["columns"]) == 1:
        from sklearn.feature_extraction.text import HashingVectorizer

        bits, analyzer, ngrams = (encoding[name] for name in ("bits", "analyzer", "ngrams"))
        return HashingVectorizer(n_features=2**bits, analyzer=analyzer, ngram_range=tuple(ngrams)), None
    if not (columns := table_columns(model, "scikit-learn")):
        return None, None
    with extra(ModelError, "a model of a table takes DataFrames of pandas, which is not installed", "pandas"):
        import pandas
    from sklearn import pipeline, preprocessing
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer

    parts: list[tuple[str, str, list[Any], list[int]]] = []  # kind, name, categories and features
    count = itertools.count()
    for column in columns:
        kind, values = column["type"], column.get("values", [column.get("fill", 0.0)])
        if kind == "category":
            numbers = [{"False": 0.0, "True": 1.0}.get(value, as_number(value)) for value in values]
            if None not in numbers and len(set(numbers)) == len(numbers):
                kind, values = "category of numbers", numbers
        kind = "filled number" if "fill" in column else kind
        parts.append((kind, column["name"], values, [next(count) for _ in values]))
        if column.get("indicator"):
            parts.append(("missing", column["name"], values, [next(count)]))
    row = pandas.DataFrame({name: values[:1] for _, name, values, _ in parts})
    parts.sort(key=itemgetter(0))
    apply = partial(preprocessing.FunctionTransformer, feature_names_out="one-to-one")
    as_objects = [apply(methodcaller("astype", dtype)) for dtype in (float, object)]  # which need no order
    transformers = []
    for kind, members in itertools.groupby(parts, itemgetter(0)):
        _, names, categories, _ = zip(*members, strict=True)
        one_hot = preprocessing.OneHotEncoder(categories=list(categories), handle_unknown="ignore")
        made = {
            "number": "passthrough",
            "filled number": SimpleImputer(),  # with the means of the one row that it is fitted to
            "missing": apply(pandas.isna),
            "category": one_hot,
            "category of numbers": pipeline.make_pipeline(*as_objects, one_hot),
        }[kind]
        transformers.append((kind, made, list(names)))
    return ColumnTransformer(transformers).fit(row), np.argsort(np.concatenate([part[-1] for part in parts]))
