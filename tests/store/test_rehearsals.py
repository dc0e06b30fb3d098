"""What a dry run remembers: found by each address as it would be by now, if there is room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.errors import Unavailable
from app.store.rehearsals import Rehearsal


@pytest.fixture
def rehearsal() -> Iterator[Rehearsal]:
    with Rehearsal() as one:
        yield one


def keep(rehearsal: Rehearsal, id: str, email_key: str | None, phone: str | None, body: object):
    rehearsal.keep([(id, {"email_key": email_key, "phone": phone}, body)])


def test_each_is_found_by_what_it_is_known_by_now(rehearsal: Rehearsal):
    keep(rehearsal, "con_1", "a@x.test", "+1", [{"n": 1.5, "yes": True}, ["ä"]])
    keep(rehearsal, "con_2", None, None, 2)
    everything = {"email_keys": ["a@x.test"], "phones": ["+1"], "ids": ["con_1", "con_2", "con_3"]}
    assert rehearsal.find(**everything) == {
        "con_1": [{"n": 1.5, "yes": True}, ["ä"]],
        "con_2": 2,
    }
    keep(rehearsal, "con_1", "b@x.test", None, "changed")
    assert rehearsal.find(email_keys=["a@x.test"], phones=["+1"], ids=[]) == {}
    assert rehearsal.find(email_keys=["b@x.test"], phones=[], ids=[]) == {"con_1": "changed"}


def test_another_s_is_another_one(rehearsal: Rehearsal):
    keep(rehearsal, "con_1", None, None, 1)
    with Rehearsal() as other:
        assert other.find(email_keys=[], phones=[], ids=["con_1"]) == {}


def test_no_room_is_told(rehearsal: Rehearsal):
    rehearsal._file.execute("PRAGMA max_page_count = 20")
    with pytest.raises(Unavailable, match="not enough space"):
        keep(rehearsal, "con_1", None, None, "x" * 200_000)
