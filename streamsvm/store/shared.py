"""Read a store once for several trainings, each of which runs in a thread of its own."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future

from streamsvm.data.rows import Rows
from streamsvm.data.statistics import Statistics
from streamsvm.store.chunk_reader import Ranges
from streamsvm.store.reader import Store
from streamsvm.store.views import StoreView


class Reads:
    """How a training reads its stores: alone, unless a subclass says otherwise."""

    def of(self, store: Store) -> Store:
        """The store to read instead of `store`."""
        return store

    def begin_pass(self, pass_number: int, blocks_done: int) -> None:
        """Called before a pass, or what is left of it, is read."""


class SharedReads:
    """Reads of several trainings: rows that they ask for at the same place are read once.

    A place is a pass, and the number of reads in it. No request is granted before all trainings that still
    run have made one. Then those at the earliest place are: one of the trainings that want the same rows
    reads them, and the others take what it has read, which none may change, or its error. So trainings that
    have come further, in a run before this one, wait for the others to reach them, and trainings whose blocks
    differ read their own.

    Parameters
    ----------
    n_trainings : int

    Attributes
    ----------
    readers : list of SharedReader
        One for each training. A training that does not call `SharedReader.end` lets the others wait for ever.
    """

    def __init__(self, n_trainings: int) -> None:
        self.readers = [SharedReader(self) for _ in range(n_trainings)]
        self._running = set(self.readers)
        self._waiting: list[_Request] = []
        self._changed = threading.Condition()

    def rows(self, place: tuple[int, int], key: Hashable, read: Callable[[], Rows]) -> Rows:
        """What `read` returns, here or in another thread that wants the same `key`."""
        request = _Request(place, key)
        with self._changed:
            self._waiting.append(request)
            self._grant()
            while request.rows is None:
                self._changed.wait()
        if request.is_first:
            try:
                request.rows.set_result(read())
            except BaseException as error:
                request.rows.set_exception(error)
        return request.rows.result()

    def end(self, reader: SharedReader) -> None:
        with self._changed:
            self._running.discard(reader)
            self._grant()

    def _grant(self) -> None:
        """Grant the requests at the earliest place, if all trainings wait."""
        if not self._waiting or len(self._waiting) < len(self._running):
            return
        earliest = min(request.place for request in self._waiting)
        granted: dict[Hashable, Future[Rows]] = {}
        for request in self._waiting:
            if request.place == earliest:
                request.is_first = request.key not in granted
                request.rows = granted.setdefault(request.key, Future())
        self._waiting = [request for request in self._waiting if request.rows is None]
        self._changed.notify_all()


@dataclasses.dataclass(eq=False)
class _Request:
    place: tuple[int, int]
    key: Hashable
    rows: Future[Rows] | None = None  # once it is granted
    is_first: bool = False  # of those that want the same rows: it is to read them


class SharedReader(Reads):
    """The reads of one of several trainings."""

    def __init__(self, shared: SharedReads) -> None:
        self._shared = shared
        self._place = (0, 0)  # before the first pass

    def of(self, store: Store) -> Store:
        return _SharedStore(store, self)

    def begin_pass(self, pass_number: int, blocks_done: int) -> None:
        self._place = (pass_number, blocks_done)

    def rows(self, key: Hashable, read: Callable[[], Rows]) -> Rows:
        place = self._place
        self._place = (place[0], place[1] + 1)
        return self._shared.rows(place, key, read)

    def end(self) -> None:
        """Say that this training reads no more, so that the others do not wait for it."""
        self._shared.end(self)


class _SharedStore(StoreView):
    """A store whose rows several trainings read together, each with an opened store of its own."""

    def __init__(self, inner: Store, reader: SharedReader) -> None:
        super().__init__(inner)
        self._reader = reader
        self.units = inner.units

    def rows_of(self, ranges: Ranges) -> Rows:
        key = (str(self.path), tuple(map(tuple, ranges)))
        return self._reader.rows(key, lambda: self.inner.rows_of(ranges))

    def statistics(self) -> Statistics | None:
        return self.inner.statistics()
