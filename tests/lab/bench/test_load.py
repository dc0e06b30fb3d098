"""The order in which requests of a load go to webhooks and name contacts."""

from __future__ import annotations

from itertools import islice

from lab.bench.load import turns


def test_each_contact_of_each_workspace_gets_its_event() -> None:
    paths, contacts = ["/a", "/b"], ["ada", "bob", "cyd", "dan"]
    first = list(islice(turns(paths, contacts), 8))
    assert set(first) == {(path, contact) for path in paths for contact in contacts}
    assert [path for path, _ in first] == paths * 4


def test_a_single_webhook_goes_round_the_contacts() -> None:
    assert [one for _, one in islice(turns(["/a"], ["ada", "bob"]), 3)] == ["ada", "bob", "ada"]
