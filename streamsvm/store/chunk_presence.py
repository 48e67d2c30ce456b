"""Presence of the chunks of a Zarr array: writers leave out those that have only the fill value."""

from __future__ import annotations


class MissingChunk(ValueError):
    """Error for a required chunk that is missing."""


class ChangedChunk(MissingChunk):
    """Error for a chunk that appeared or disappeared since it was read before."""


class ChunkPresence:
    """Record of the chunks of one array that were present or absent when first read.

    Attributes
    ----------
    required : bool
        True if each chunk must be there.
    present, absent : set of tuple of int
        Places in the grid of those that are there, and that are not.
    rows : set of int
        The rows of the grid that were read.
    """

    def __init__(self) -> None:
        self.required = False
        self.present: set[tuple[int, ...]] = set()
        self.absent: set[tuple[int, ...]] = set()
        self.rows: set[int] = set()

    def note(self, place: tuple[int, ...], present: bool) -> None:
        """Record a chunk that is read; raise `MissingChunk` if it is absent but required, or changed."""
        if place in (self.absent if present else self.present):
            now = "there, and was missing" if present else "missing, and was there"
            raise ChangedChunk(f"the chunk is {now} when it was read before")
        if not present and self.required:
            raise MissingChunk("the chunk is missing")
        (self.present if present else self.absent).add(place)
        self.rows.add(place[0])
