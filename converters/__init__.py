"""Convert files to stores with `convert`, or read their rows with `open_reader` and `TextSource`."""

from streamsvm_converters.convert import ConvertReport, convert
from streamsvm_converters.description import describe as describe
from streamsvm_converters.kinds.registry import open_reader
from streamsvm_converters.libsvm.position import InputFile as InputFile
from streamsvm_converters.tables.text import hashed_matrix as hashed_matrix
from streamsvm_converters.tables.text import ngrams_by_feature as ngrams_by_feature
from streamsvm_converters.text_source import TextSource

__all__ = ["ConvertReport", "TextSource", "convert", "open_reader"]
