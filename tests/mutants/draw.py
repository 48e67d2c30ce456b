"""Draw faults from the syntax trees of the engine, the store and the converters: draw.py --seed N --count N.

Prints entries for faults.toml: a comparison with another operator, a constant off by one, or a branch that is
taken when it should not be. A draw that changes nothing that one could observe is to be replaced by the next.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("streamsvm/data", "streamsvm/kernels", "streamsvm/losses", "streamsvm/training", "streamsvm/run",
           "streamsvm/store", "converters")  # fmt: skip
OTHER = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
         ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in"}  # fmt: skip


def source(node: ast.AST, lines: list[bytes]) -> str:
    """The text of an expression on one line."""
    return lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()


def mutations(path: Path) -> Iterator[tuple[str, int, int, int, str]]:
    """Yield kind, line, first and last column, and replacement; messages and annotations are left out."""
    text = path.read_bytes()
    lines = text.split(b"\n")
    tree = ast.parse(text)
    skipped = set()
    for node in ast.walk(tree):
        parts = [node] if isinstance(node, ast.Raise | ast.JoinedStr) else []
        parts += filter(None, (getattr(node, name, None) for name in ("annotation", "returns")))
        skipped |= {id(inner) for part in parts for inner in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in skipped or getattr(node, "lineno", 0) != getattr(node, "end_lineno", -1):
            continue
        begin = node.col_offset
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = source(node.left, lines), source(node.comparators[0], lines)
            other = OTHER[type(node.ops[0])]
            yield "comparison", node.lineno, begin, node.end_col_offset, f"({left}) {other} ({right})"
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield "constant", node.lineno, begin, node.end_col_offset, str(node.value + 1)
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield "constant", node.lineno, begin, node.end_col_offset, str(not node.value)
        elif isinstance(node, ast.If | ast.IfExp | ast.While) and node.test.lineno == node.test.end_lineno:
            test = node.test
            yield "branch", test.lineno, test.col_offset, test.end_col_offset, f"not ({source(test, lines)})"


def entry(path: Path, kind: str, line: int, begin: int, end: int, new: str) -> str | None:
    """The fault as text to find and text to put there; None if one line does not tell the place."""
    content = path.read_text()
    lines = content.split("\n")
    old_line = lines[line - 1].encode()
    new_line = old_line[:begin] + new.encode() + old_line[end:]
    old, changed = old_line.decode(), new_line.decode()
    for before in range(4):  # lines above, until the text is there once
        above = lines[line - 1 - before : line - 1]
        find = "\n".join([*above, old])
        if content.count(find) == 1:
            put = "\n".join([*above, changed])
            values = {"file": str(path.relative_to(ROOT)), "find": find, "put": put}
            return "\n".join(f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in values.items())
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20)
    options = parser.parse_args()
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            found += [(path, *mutation) for mutation in mutations(path)]
    random.Random(options.seed).shuffle(found)
    n = 0
    for each in found:
        text = entry(*each)
        if text is not None and n < options.count:
            n += 1
            print(f'[[fault]]\nname = "{each[1]} {n}"\n{text}\n')


if __name__ == "__main__":
    main()
