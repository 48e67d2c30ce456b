"""The on-disk store: a CSR matrix with class labels, in Zarr 3 or HDF5, that anndata opens without us.

Importing this package loads neither zarr nor h5py; the container's library is imported when a store of
its kind is opened or written.
"""

from __future__ import annotations

from streamsvm.store.layout import store_kind
from streamsvm.store.reader import Store, open_store
from streamsvm.store.writer import StoreWriter

__all__ = ["Store", "StoreWriter", "open_store", "store_kind"]
