"""An HDF5 store of ours, or AnnData of others: open it, read all of it, verify it.

The first byte chooses what is made right again, so that damage gets past the first checksum of libhdf5.
libhdf5 itself may crash or never return on damaged files. So each file is tried in a child first; where
that does not come back, the fault is counted as the library's if it was at work, and passed over.
"""

from __future__ import annotations

import faulthandler
import functools
import json
import os
import re
import resource
import signal
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
from fuzz.targets.zarr_store import read_all
from fuzz.workplace import folder
from helpers import make_problem, make_store
from numcodecs.jenkins import jenkins_lookup3

from streamsvm.base import format
from streamsvm.store import layout

CHECKSUMS, LABEL, SEAL = 1, 2, 4  # flags: of libhdf5's headers; a label column is asked for; of our record
MAX_BYTES = 30_000
CHILD_SECONDS, CHILD_MEMORY = 6, 2**32
TOKENS = (
    b"OHDR",
    b"OCHK",
    b"TREE",
    b"FADB",
    b"EADB",
    b"FRHP",
    b"BTHD",
    b"\xff" * 8,
    bytes(8),
    b"\x89HDF\r\n\x1a\n",
)

passed_over: dict[str, int] = {}  # how often, by the signal and the frame that was at work


def run(data: bytes) -> None:
    if not data:
        return
    flags, content = data[0], data[1:]
    if flags & SEAL:
        content = _with_sealed_record(content)
    if flags & CHECKSUMS:
        content = _with_checksums(content)
    path = folder("hdf5") / "s.h5"
    path.write_bytes(content)
    label = "label" if flags & LABEL else None
    if _survives(path, label):
        read_all(path, label)


def _survives(path: Path, label: str | None) -> bool:
    """Whether a child can open and read the file; what it raises is looked at in this process."""
    with tempfile.TemporaryFile() as trace:
        child = os.fork()
        if child == 0:
            faulthandler.enable(trace, all_threads=False)
            faulthandler.register(signal.SIGALRM, trace, all_threads=False, chain=True)
            resource.setrlimit(resource.RLIMIT_AS, (_address_space() + CHILD_MEMORY,) * 2)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            faulthandler.dump_traceback_later(CHILD_SECONDS - 1, file=trace)
            signal.alarm(CHILD_SECONDS)
            try:
                read_all(path, label)
            except BaseException:
                os._exit(0)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status == 0:
            return True
        trace.seek(0)
        frames = re.findall(rb'File "([^"]+)", line (\d+) in (\w+)', trace.read())
    assert frames, f"a child ended by status {status}"
    file, line, _ = frames[0]
    what = f"status {status} at {Path(file.decode()).name}:{line.decode()}"
    library = any(part in file for part in (b"h5py", b"hdf5_backend"))  # which call libhdf5 alone
    assert library, what
    if what not in passed_over:
        print("passed over:", what, file=sys.stderr)
    passed_over[what] = passed_over.get(what, 0) + 1
    return False


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _with_checksums(content: bytes) -> bytes:
    """The superblock and every object header get the checksum that fits (HDF5 format, version 3)."""
    found = bytearray(content)
    if len(found) >= 48:
        found[44:48] = jenkins_lookup3(bytes(found[:44])).to_bytes(4, "little")
    for match in re.finditer(rb"OHDR\x02", content):
        at, flags = match.end(), content[match.end() : match.end() + 1]
        if not flags:
            continue
        at += 1 + (16 if flags[0] & 0x20 else 0) + (4 if flags[0] & 0x10 else 0)
        width = 1 << (flags[0] & 3)
        end = at + width + int.from_bytes(found[at : at + width], "little")
        if end + 4 <= len(found):
            found[end : end + 4] = jenkins_lookup3(bytes(found[match.start() : end])).to_bytes(4, "little")
    return bytes(found)


def _with_sealed_record(content: bytes) -> bytes:
    """Our record gets the checksum that fits its text, which keeps its length."""
    match = re.search(rb'\{"version": .*"checksum": "[^"]{64}"\}', content)
    if match is None:
        return content
    try:
        record = json.loads(match.group())
        digest = format.json_digest(record).encode()
    except (ValueError, RecursionError):
        return content
    return content[: match.end() - 66] + digest + content[match.end() - 2 :]


@functools.cache
def seeds() -> list[bytes]:
    X, labels = make_problem(8, 5, 3)
    made = make_store(folder("hdf5-seeds") / "s.h5", X, labels, dtype="float32", chunk_nnz=16)
    dense = make_store(folder("hdf5-seeds") / "d.h5", X, labels, dtype="float16", chunk_nnz=16, dense=True)
    stores = (made.read_bytes(), dense.read_bytes())
    found = [bytes([flags]) + each for flags in (0, CHECKSUMS, CHECKSUMS | SEAL) for each in stores]
    foreign = folder("hdf5-seeds") / "foreign.h5ad"
    with h5py.File(made) as source, h5py.File(foreign, "w", libver="latest") as copy:
        for name in ("encoding-type", "encoding-version"):
            copy.attrs[name] = source.attrs[name]
        for name in ("X", "obs", "obs/label"):
            copy.require_group(name).attrs.update(source[name].attrs)
        for name in (layout.DATA, layout.INDICES, layout.INDPTR, layout.CODES, layout.NAMES):
            copy.create_dataset(name, data=source[name][:])
        texts = np.array(["a", "b", "c"], dtype=object)
        copy.create_dataset(layout.CATEGORIES, data=texts, dtype=h5py.string_dtype())
    found += [bytes([flags]) + foreign.read_bytes() for flags in (LABEL, LABEL | CHECKSUMS)]
    return found
