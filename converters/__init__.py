"""Text and other files to stores: `convert` writes one, `read_rows` streams rows without one."""

from streamsvm_converters.convert import ConvertReport, convert
from streamsvm_converters.read import TextRows, read_rows
from streamsvm_converters.stream import TextStream

__all__ = ["ConvertReport", "TextRows", "TextStream", "convert", "read_rows"]
