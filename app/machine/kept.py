"""A cache whose bound is in bytes: what was used longest ago is dropped first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Kept(Generic[Key, Value]):
    """Values of known weight. One that is heavier than all together may be is not kept."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.bytes = 0
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        found = self._values.get(key)
        if found is None:
            return None
        self._values.move_to_end(key)
        return found[0]

    def keep(self, key: Key, value: Value, weight: int) -> None:
        if weight > self.most_bytes:
            return
        self.drop(key)
        self._values[key] = (value, weight)
        self.bytes += weight
        while self.bytes > self.most_bytes:
            self.bytes -= self._values.popitem(last=False)[1][1]

    def drop(self, key: Key) -> None:
        if key in self._values:
            self.bytes -= self._values.pop(key)[1]

    def clear(self) -> None:
        self._values.clear()
        self.bytes = 0
