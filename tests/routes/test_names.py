"""GET /names: what the fields and events of contacts are called, and none of their values."""

from __future__ import annotations

import pytest

from tests.cast import Cast

NONE: dict[str, list[str]] = {"fields": [], "events": []}


async def test_the_names_of_fields_and_events_are_listed_without_their_values(cast: Cast) -> None:
    assert await cast.vic.read("/names") == NONE
    for seats in (3, 4):
        ada = await cast.ed.made(
            "/contacts", {"metadata": {"plan": "secret", "seats": seats, "beta": True}}
        )
    await cast.ed.made("/contacts", {"metadata": {"plan": "secret", "seats": "many"}})
    for name in ("seen", "paid", "paid"):
        event = {"name": name, "properties": {"card": "secret"}}
        assert (await cast.ed.post(f"/contacts/{ada['id']}/events", event)).is_success
    shown = await cast.vic.read("/names")
    assert shown == {
        "fields": [
            {"name": "plan", "types": ["string"]},
            {"name": "seats", "types": ["string", "number"]},
            {"name": "beta", "types": ["boolean"]},
        ],
        "events": ["paid", "seen"],
    }
    assert "secret" not in str(shown)


@pytest.mark.parametrize("role", ["vic", "ed", "adam", "olivia"])
async def test_whoever_may_read_contacts_may_read_them_and_nobody_else(
    cast: Cast, role: str
) -> None:
    made = {"metadata": {"plan": "pro"}}
    ada = await cast.ed.made("/contacts", made)
    await cast.ed.post(f"/contacts/{ada['id']}/events", {"name": "paid"})
    assert await getattr(cast, role).read("/names") == {
        "fields": [{"name": "plan", "types": ["string"]}],
        "events": ["paid"],
    }
    assert await cast.mallory.read("/names") == NONE
    assert (await cast.client.get("/names")).status_code == 401


async def test_it_is_no_list_of_pages(cast: Cast) -> None:
    assert (await cast.vic.get("/names?limit=5")).status_code == 422
