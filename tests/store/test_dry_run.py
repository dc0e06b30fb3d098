"""Memory of a dry run: contacts are found by each address as they would be by now, if there is
room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.errors import Unavailable
from app.store.dry_run import DryRunContacts


@pytest.fixture
def dry_run_contacts() -> Iterator[DryRunContacts]:
    with DryRunContacts() as one:
        yield one


def keep(
    dry_run_contacts: DryRunContacts,
    id: str,
    email_key: str | None,
    phone: str | None,
    body: object,
) -> None:
    dry_run_contacts.keep([(id, {"email_key": email_key, "phone": phone}, body)])


def test_each_is_found_by_what_it_is_known_by_now(dry_run_contacts: DryRunContacts) -> None:
    keep(dry_run_contacts, "con_1", "a@x.test", "+1", [{"n": 1.5, "yes": True}, ["ä"]])
    keep(dry_run_contacts, "con_2", None, None, 2)
    everything = {"email_keys": ["a@x.test"], "phones": ["+1"], "ids": ["con_1", "con_2", "con_3"]}
    assert dry_run_contacts.find(**everything) == {
        "con_1": [{"n": 1.5, "yes": True}, ["ä"]],
        "con_2": 2,
    }
    keep(dry_run_contacts, "con_1", "b@x.test", None, "changed")
    assert dry_run_contacts.find(email_keys=["a@x.test"], phones=["+1"], ids=[]) == {}
    assert dry_run_contacts.find(email_keys=["b@x.test"], phones=[], ids=[]) == {"con_1": "changed"}


def test_another_s_is_another_one(dry_run_contacts: DryRunContacts) -> None:
    keep(dry_run_contacts, "con_1", None, None, 1)
    with DryRunContacts() as other:
        assert other.find(email_keys=[], phones=[], ids=["con_1"]) == {}


def test_no_room_is_told(dry_run_contacts: DryRunContacts) -> None:
    dry_run_contacts._file.execute("PRAGMA max_page_count = 20")
    with pytest.raises(Unavailable, match="not enough space"):
        keep(dry_run_contacts, "con_1", None, None, "x" * 200_000)
