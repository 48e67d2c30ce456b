"""Files to stores: `convert` writes one; `read_rows` and `TextSource` stream the rows of text without one."""

from streamsvm_converters.convert import ConvertReport, convert
from streamsvm_converters.text_source import TextSource, read_rows

__all__ = ["ConvertReport", "TextSource", "convert", "read_rows"]
