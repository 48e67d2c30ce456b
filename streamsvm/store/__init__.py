"""On-disk stores: labelled CSR or dense matrices in Zarr 3 or HDF5, which anndata can open without streamsvm.

zarr and h5py are imported only when they are needed.
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
