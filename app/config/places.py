"""The countries and time zones there are, from the time zone database that is installed anyway."""

from __future__ import annotations

from importlib.resources import files

TIMEZONES = frozenset((files("tzdata") / "zones").read_text("utf-8").split())

# ISO 3166-1 alpha-2.
COUNTRIES = frozenset(
    line[:2]
    for line in (files("tzdata") / "zoneinfo" / "iso3166.tab").read_text("utf-8").splitlines()
    if not line.startswith("#")
)


def check_timezone(text: str) -> str:
    """Raises ValueError."""
    if text not in TIMEZONES:
        raise ValueError("Must be an IANA time zone, such as Europe/Berlin.")
    return text


def check_country(text: str) -> str:
    """Raises ValueError."""
    if text not in COUNTRIES:
        raise ValueError("Must be a country's two capital letters (ISO 3166-1), such as DE.")
    return text
