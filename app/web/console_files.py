"""The built files of the console, read once: the page, and what it loads by hashed names."""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from html import escape
from pathlib import Path

BUILT = Path(__file__).parent / "dist"
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
NAME = re.compile(r"[a-z0-9_]+-[A-Z0-9]{8}\.(?:js|css|svg)")  # the hash is that of the content


@dataclass(frozen=True, slots=True)
class Asset:
    """A file under a hashed name, which stands for it for ever."""

    body: bytes
    packed: bytes  # as gzip
    media_type: str


@dataclass(frozen=True, slots=True)
class Files:
    page: str  # "" while nothing is built
    assets: Mapping[str, Asset] = field(default_factory=dict)


@lru_cache(4)
def load(prefix: str = "") -> Files:
    """Load what `make console` built. `prefix` is the path under which a proxy shows the
    service."""
    page = BUILT / "index.html"
    if not page.exists():
        return Files("")
    assets = {}
    for path in BUILT.iterdir():
        if NAME.fullmatch(path.name):
            packed = path.with_name(f"{path.name}.gz")
            body = path.read_bytes()
            kept = packed.read_bytes() if packed.exists() else gzip.compress(body, mtime=0)
            assets[path.name] = Asset(body, kept, MEDIA_TYPES[path.suffix])
    return Files(page.read_text("utf-8").replace("{prefix}", escape(prefix)), assets)
