"""Zarr's access to a store at a URL, with retries."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from zarr.storage import FsspecStore

from streamsvm.store.remote_files import wait_after


class RetryingStore(FsspecStore):
    """Zarr store at a URL that repeats failed requests."""

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        for attempt in itertools.count():
            try:
                found = await super().get(key, prototype, byte_range)
                break
            except Exception as error:
                wait = wait_after(error, attempt)
            await asyncio.sleep(wait)
        return found
