"""Files to stores: `convert` writes one; `open_reader`, `read_rows`, `TextSource` stream rows without."""

from streamsvm_converters.convert import ConvertReport, convert
from streamsvm_converters.kinds.registry import kind_of, open_reader
from streamsvm_converters.text_source import TextSource, read_rows

__all__ = ["ConvertReport", "TextSource", "convert", "kind_of", "open_reader", "read_rows"]
