"""Zarr's access to a store at a URL, with retries and a record of missing chunks."""

from __future__ import annotations

import asyncio
import itertools
import re
from typing import Any

from zarr.storage import FsspecStore

from streamsvm.store.chunk_presence import ChunkPresence
from streamsvm.store.remote_files import wait_after


class RetryingStore(FsspecStore):
    """Zarr store at a URL that repeats failed requests and records missing chunks.

    Attributes
    ----------
    presence : dict of str to ChunkPresence
        By the paths of the arrays that are read.
    """

    presence: dict[str, ChunkPresence]

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        for attempt in itertools.count():
            try:
                found = await super().get(key, prototype, byte_range)
                break
            except Exception as error:
                wait = wait_after(error, attempt)
            await asyncio.sleep(wait)
        for path, presence in self.presence.items():
            place = tuple(map(int, re.findall(r"\d+", key.removeprefix(path + "/"))))
            if place and key.startswith(path + "/"):  # metadata have no number
                presence.note(place, found is not None)
        return found
