"""Which chunks of a Zarr array are there. Writers leave out those of nothing but the fill value."""

from __future__ import annotations


class MissingChunk(ValueError):
    """A chunk that is not there and must be."""


class ChunkPresence:
    """The chunks of one array that were there, and were not, when each was first read.

    Attributes
    ----------
    required : bool
        Whether each chunk must be there.
    absent : set of tuple of int
        Places in the grid of those that are not.
    """

    def __init__(self) -> None:
        self.required = False
        self.absent: set[tuple[int, ...]] = set()
        self._present: set[tuple[int, ...]] = set()

    def note(self, place: tuple[int, ...], present: bool) -> None:
        """Take note of a chunk that is read; raise `MissingChunk` if it must be there, or was before."""
        if not present and (self.required or place in self._present):
            since = "" if self.required else ", and was there when it was read before"
            raise MissingChunk(f"the chunk is missing{since}")
        if present and place in self.absent:
            raise MissingChunk("the chunk is there, and was missing when it was read before")
        (self._present if present else self.absent).add(place)

    @property
    def rows(self) -> int:
        """How many rows of the grid were read."""
        return len({place[0] for place in self._present | self.absent})
