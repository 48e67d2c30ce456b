"""Export of models to other programs: one file for each format."""

from streamsvm.exporting.export import FORMATS, Exported, export_model

__all__ = ["FORMATS", "Exported", "export_model"]
