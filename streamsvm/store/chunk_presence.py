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
    absent : set of tuple of int
        Places in the grid of those that are not.
    rows : set of int
        The rows of the grid that were read.
    """

    def __init__(self) -> None:
        self.required = False
        self.absent: set[tuple[int, ...]] = set()
        self.rows: set[int] = set()
        self._present: set[tuple[int, ...]] = set()

    def note(self, place: tuple[int, ...], present: bool) -> None:
        """Take note of a chunk that is read; raise `MissingChunk` if it must be there, or was before."""
        if not present and place in self._present:
            raise ChangedChunk("the chunk is missing, and was there when it was read before")
        if not present and self.required:
            raise MissingChunk("the chunk is missing")
        if present and place in self.absent:
            raise ChangedChunk("the chunk is there, and was missing when it was read before")
        (self._present if present else self.absent).add(place)
        self.rows.add(place[0])

    @property
    def in_part(self) -> bool:
        """Whether rows of the grid have chunks that are there and others that are not."""
        return not {place[0] for place in self.absent}.isdisjoint(place[0] for place in self._present)
