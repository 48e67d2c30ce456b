"""Which chunks of a Zarr array are there. Writers leave out those of nothing but the fill value."""

from __future__ import annotations


class MissingChunk(ValueError):
    """A chunk that is not there and must be."""


class ChangedChunk(MissingChunk):
    """A chunk that was there, or was not, when it was read before."""


class ChunkPresence:
    """The chunks of one array that were there, and were not, when each was first read.

    Attributes
    ----------
    required : bool
        Whether each chunk must be there.
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
        """Take note of a chunk that is read; raise `MissingChunk` if it must be there, or was before."""
        if place in (self.absent if present else self.present):
            now = "there, and was missing" if present else "missing, and was there"
            raise ChangedChunk(f"the chunk is {now} when it was read before")
        if not present and self.required:
            raise MissingChunk("the chunk is missing")
        (self.present if present else self.absent).add(place)
        self.rows.add(place[0])
