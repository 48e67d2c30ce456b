"""Provide the columns of the training table as records and as a scikit-learn transformer."""

from __future__ import annotations

import itertools
from functools import partial
from operator import itemgetter, methodcaller
from typing import Any

from streamsvm.base.label_values import as_number
from streamsvm.errors import ModelError, extra
from streamsvm.model.model import Model


def table_columns(model: Model, program: str) -> list[dict[str, Any]]:
    """Return the table's column records, if any; raise `ModelError` if `program` cannot encode a column."""
    encoding = model.record.get("encoding") or {"columns": []}
    columns: list[dict[str, Any]] = encoding["columns"]
    for kind, is_present in ("text", "text" in encoding), ("date", any("date" in each for each in columns)):
        if is_present:
            raise ModelError(f"{program} cannot encode {kind} columns; export to streamsvm")
    return columns


def raw_transformer(model: Model) -> Any:
    """Return a ``HashingVectorizer`` for text, a fitted ``ColumnTransformer`` for a table, None for a matrix.

    Adjacent columns of the same type share one transformer. Numeric and boolean categories are compared as
    numbers, because a DataFrame may contain them as integers, floats or text.
    """
    if model.takes_texts and len((encoding := model.record["encoding"]["text"])["columns"]) == 1:
        from sklearn.feature_extraction.text import HashingVectorizer

        bits, analyzer, ngrams = (encoding[name] for name in ("bits", "analyzer", "ngrams"))
        norm = encoding.get("norm", "l2")
        return HashingVectorizer(
            n_features=2**bits, analyzer=analyzer, ngram_range=tuple(ngrams),
            norm=norm, alternate_sign=norm is not None,
        )  # fmt: skip
    if not (columns := table_columns(model, "scikit-learn")):
        return None
    with extra(ModelError, "a model trained on a table needs pandas, which is not installed", "pandas"):
        import pandas
    from sklearn import pipeline, preprocessing
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer

    parts: list[tuple[str, str, list[Any]]] = []  # kind, name, and categories or fill value
    for column in columns:
        kind, values = column["type"], column.get("values", [column.get("fill", 0.0)])
        if kind == "category":
            numbers = [{"False": 0.0, "True": 1.0}.get(value, as_number(value)) for value in values]
            if None not in numbers and len(set(numbers)) == len(numbers):
                kind, values = "category of numbers", numbers
        parts.append(("filled number" if "fill" in column else kind, column["name"], values))
        if column.get("indicator"):
            parts.append(("missing", column["name"], values))
    row = pandas.DataFrame({name: values[:1] for _, name, values in parts})
    apply = partial(preprocessing.FunctionTransformer, feature_names_out="one-to-one")
    # OneHotEncoder requires sorted categories for numbers, but not for objects.
    as_objects = [apply(methodcaller("astype", dtype)) for dtype in (float, object)]
    transformers: list[tuple[str, Any, list[str]]] = []
    for kind, members in itertools.groupby(parts, itemgetter(0)):
        _, names, categories = zip(*members, strict=True)
        one_hot = preprocessing.OneHotEncoder(categories=list(categories), handle_unknown="ignore")
        transformer = {
            "number": "passthrough",
            "filled number": SimpleImputer(),  # fitted to one row of fill values, which become the means
            "missing": apply(pandas.isna),
            "category": one_hot,
            "category of numbers": pipeline.make_pipeline(*as_objects, one_hot),
        }[kind]
        transformers.append((f"{kind} {len(transformers) + 1}", transformer, list(names)))
    return ColumnTransformer(transformers).fit(row)
