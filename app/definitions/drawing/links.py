"""Links between boxes: which lead back, how long they are, and which are drawn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

Link: TypeAlias = tuple[int, int]

MAX_ROWS_PASSED = 8_000  # beyond it the layout takes seconds, and nobody can read the picture


def back_links(boxes: int, links: Sequence[Link]) -> frozenset[int]:
    """The back edges of a depth-first search: without them there is no cycle."""
    leaving: dict[int, list[int]] = defaultdict(list)
    for index, (source, _) in enumerate(links):
        leaving[source].append(index)
    back: set[int] = set()
    inside: set[int] = set()
    met: set[int] = set()
    for start in range(boxes):
        stack = [] if start in met else [(start, iter(leaving[start]))]
        while stack:
            box, rest = stack[-1]
            met.add(box)
            inside.add(box)
            for index in rest:
                target = links[index][1]
                if target in inside:
                    back.add(index)
                elif target not in met:
                    stack.append((target, iter(leaving[target])))
                    break
            else:
                stack.pop()
                inside.discard(box)
    return frozenset(back)


def lengths_of(boxes: int, down: Sequence[Link]) -> list[int]:
    """Count the rows of boxes that each link goes down, when every box stands as high as it can."""
    rows, coming = [0] * boxes, [0] * boxes
    following: dict[int, list[int]] = defaultdict(list)
    for source, target in down:
        if source != target:
            following[source].append(target)
            coming[target] += 1
    ready = [box for box in range(boxes) if not coming[box]]
    while ready:
        box = ready.pop()
        for target in following[box]:
            rows[target] = max(rows[target], rows[box] + 1)
            coming[target] -= 1
            if not coming[target]:
                ready.append(target)
    return [rows[target] - rows[source] for source, target in down]


def short_enough(lengths: Sequence[int]) -> frozenset[int]:
    """All links, without the longest when all together pass too many rows."""
    kept: set[int] = set()
    passages = 0
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        passages += 2 * lengths[index]
        if passages > MAX_ROWS_PASSED and lengths[index] > 1:
            break
        kept.add(index)
    return frozenset(kept)
