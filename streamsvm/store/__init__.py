"""The on-disk store: a CSR matrix with class labels, in Zarr 3 or HDF5, which anndata can open by itself.

Importing this package loads neither zarr nor h5py; a container's library is imported when a store of its
kind is opened or written.
"""

from __future__ import annotations

from streamsvm.store.layout import store_kind
from streamsvm.store.open import open_store, open_stores, open_validation_store
from streamsvm.store.record import Contents
from streamsvm.store.store import Store
from streamsvm.store.writer import StoreWriter

__all__ = [
    "Contents",
    "Store",
    "StoreWriter",
    "open_store",
    "open_stores",
    "open_validation_store",
    "store_kind",
]
