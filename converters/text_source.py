"""LIBSVM text straight to batches of rows, without a store: for online training and for prediction."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from streamsvm_converters.libsvm.inputs import STDIN, total_size

from streamsvm.data.rows import Rows
from streamsvm.durable import reason
from streamsvm.errors import InputError, SettingsError, part_of_memory
from streamsvm.format import are_labels
from streamsvm.schema import Check, Count, SchemaError, decode, encode
from streamsvm.text import check_classes, check_local, parse_size

if TYPE_CHECKING:
    from streamsvm_converters.libsvm.blocks import Place
    from streamsvm_converters.libsvm.reader import Counts, LibsvmReader
