"""Models for other programs, and models of LIBLINEAR for this one: a file for each format."""

from streamsvm.exporting.export import FORMATS, Exported, export_model

__all__ = ["FORMATS", "Exported", "export_model"]
