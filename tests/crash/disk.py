"""What a disk may hold after the power fails: only what was synced is sure.

A file's content is sure up to its last fsync, a name in a folder up to the last fsync of the folder; that
a file was synced does not make its name sure. This is all that POSIX promises, and less than most file
systems keep.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from tracer import Event

DATA = ("lost", "zero", "kept", "mixed")  # what becomes of unsynced bytes
NAMES = ("lost", "kept", "mixed")  # and of unsynced creations, renames and removals


@dataclasses.dataclass(eq=False)
class File:
    now: bytearray = dataclasses.field(default_factory=bytearray)
    synced: bytes = b""
    changes: list[Event] = dataclasses.field(default_factory=list)  # since then

    def change(self, event: Event) -> None:
        apply(self.now, event)
        self.changes.append(event)

    def after_power_loss(self, how: str, rng: np.random.Generator) -> bytes:
        if how == "mixed":
            how = rng.choice([*DATA])
        match how:
            case "lost":
                return self.synced
            case "kept":
                return bytes(self.now)
            case "zero":  # the length is in the folder's journal, the bytes never arrived
                return self.synced[: len(self.now)].ljust(len(self.now), b"\0")
        content = bytearray(self.synced)
        for event in self.changes:
            if rng.integers(2):
                apply(content, event)
        return bytes(content)


def apply(content: bytearray, event: Event) -> None:
    """Write or change the length, as `event` says."""
    size = event.size if event.kind in ("truncate", "grow") else event.at
    if event.kind == "truncate":
        del content[size:]
    if len(content) < size:
        content.extend(bytes(size - len(content)))
    content[event.at : event.at + len(event.data)] = event.data


@dataclasses.dataclass(eq=False)
class Folder:
    now: dict[str, Node] = dataclasses.field(default_factory=dict)


Node = File | Folder
# A change of names, made or lost as a whole: (folder, name, what is there or None).
Names = list[tuple[Folder, str, Node | None]]


class Disk:
    """A folder as the system sees it, and the part of that which is durable.

    Parameters
    ----------
    path : Path
        Everything in it is taken to be durable at the beginning.
    """

    def __init__(self, path: Path) -> None:
        self.root = Folder()
        self.pending: list[Names] = []  # changes of names that are not durable, in their order
        self.durable: dict[Folder, dict[str, Node]] = {}
        self._load(path, self.root)

    def _load(self, path: Path, folder: Folder) -> None:
        for entry in path.iterdir():
            if entry.is_dir():
                node: Node = Folder()
                self._load(entry, node)
            else:
                content = entry.read_bytes()
                node = File(bytearray(content), content)
            folder.now[entry.name] = node
        self.durable[folder] = dict(folder.now)

    def find(self, path: str) -> Node:
        node: Node = self.root
        for name in path.split("/") if path != "." else ():
            assert isinstance(node, Folder)
            node = node.now[name]
        return node

    def _parent(self, path: str) -> tuple[Folder, str]:
        folder, _, name = path.rpartition("/")
        node = self.find(folder or ".")
        assert isinstance(node, Folder)
        return node, name

    def _set(self, *names: tuple[str, Node | None]) -> None:
        change: Names = [(*self._parent(path), node) for path, node in names]
        _make(change, lambda folder: folder.now)
        self.pending.append(change)

    def do(self, event: Event) -> None:
        """Let `event` happen."""
        match event.kind:
            case "create":
                self._set((event.path, File()))
            case "mkdir":
                folder = Folder()
                self.durable[folder] = {}
                self._set((event.path, folder))
            case "unlink" | "rmdir":
                self._set((event.path, None))
            case "rename":
                self._set((event.path, None), (event.to, self.find(event.path)))
            case "link":
                self._set((event.to, self.find(event.path)))
            case "write" | "truncate" | "grow":
                file = self.find(event.path)
                assert isinstance(file, File)
                file.change(event)
            case "fsync":
                self._sync(self.find(event.path))
            case "map":
                pass  # what is written through a map is never promised
            case other:
                raise ValueError(other)

    def _sync(self, node: Node) -> None:
        if isinstance(node, File):
            node.synced = bytes(node.now)
            node.changes = []
            return
        # A rename is one change, though it is of two folders.
        for change in [c for c in self.pending if any(folder is node for folder, _, _ in c)]:
            _make(change, self.durable.__getitem__)
            self.pending.remove(change)

    def write(self, path: Path) -> None:
        """Write to `path` what the system sees."""
        self._write(path, self.root, {}, lambda file: bytes(file.now))

    def write_after_power_loss(self, path: Path, data: str, names: str, rng: np.random.Generator) -> None:
        """Write to `path` a state in which the disk may be: one of `DATA` and of `NAMES`."""
        entries = {folder: dict(there) for folder, there in self.durable.items()}
        for change in self.pending:
            if names == "kept" or (names == "mixed" and rng.integers(2)):
                _make(change, entries.__getitem__)
        self._write(path, self.root, entries, lambda file: file.after_power_loss(data, rng))

    def _write(self, path: Path, folder: Folder, entries: dict, content) -> None:
        path.mkdir(exist_ok=True)
        for name, node in entries.get(folder, folder.now).items():
            if isinstance(node, Folder):
                self._write(path / name, node, entries, content)
            else:
                (path / name).write_bytes(content(node))


def _make(change: Names, entries) -> None:
    for folder, name, node in change:
        if node is None:
            entries(folder).pop(name, None)
        else:
            entries(folder)[name] = node


def replayed(path: Path, events: Iterable[Event]) -> Disk:
    """A disk that held `path`, after `events`."""
    disk = Disk(path)
    for event in events:
        disk.do(event)
    return disk


def tree(path: Path) -> dict[str, bytes | None]:
    """All below `path`: the content of files, None for folders."""
    return {
        entry.relative_to(path).as_posix(): None if entry.is_dir() else entry.read_bytes()
        for entry in path.rglob("*")
        if not entry.name.startswith("weights") or "checkpoint" in entry.parts
    }


def spoil(path: Path, rng: np.random.Generator) -> None:
    """Overwrite the weights in use: through their map, anything may have reached the disk."""
    for weights in path.glob("*/weights*.bin"):
        size = os.stat(weights).st_size
        weights.write_bytes(rng.bytes(int(rng.integers(size + 1)) if rng.integers(2) else size))
