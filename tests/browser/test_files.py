"""A flow as a file: exported from its page, tried, brought in as it was tried."""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from tests.browser.conftest import HOSTILE, Service, Watch, opened
from tests.browser.test_acts import confirmed
from tests.browser.test_drafts import saving
from tests.browser.test_screens import clean

TRY, BRING = "Preview import", "Import now"


def flow(service: Service, mark: str) -> str:
    content = {"subject": f"Tea {mark}", "html": "<p>Tea</p>"}
    mail = service.made("/templates", {"name": mark, "channel": "email", "content": content})
    steps = [
        {"id": "tag", "type": "add_tag", "tag": "tea"},
        {"id": "mail", "type": "send_message", "channel": "email", "templateId": mail["id"]},
    ]
    return str(service.made("/workflows", {"name": f"Tea {mark}", "steps": steps})["id"])


def exported(page: Page, service: Service, id: str) -> tuple[str, Any]:
    """The name of the file, and what is in it."""
    opened(page, service, f"/flows/workflows/{id}")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    text = Path(download.value.path()).read_text("utf-8")
    return download.value.suggested_filename, json.loads(text)


def tag_of(service: Service, id: str) -> str:
    return str(service.read(f"/workflows/{id}")["steps"][0]["tag"])


def test_a_flow_is_exported_changed_and_imported_as_it_was_tried(
    page: Page, service: Service, watch: Watch, tmp_path: Path
) -> None:
    watch.expected = "4"
    mark = secrets.token_hex(4)
    id = flow(service, mark)
    name, file = exported(page, service, id)
    assert (name, file["name"], list(file["templates"])) == (
        f"tea-{mark}.json",
        f"Tea {mark}",
        [mark],
    )
    assert file == service.read(f"/workflows/{id}/export")

    file["definition"]["steps"][0]["tag"] = HOSTILE[:40]
    file["templates"][mark]["content"]["subject"] = "Coffee"
    path = tmp_path / name
    path.write_text(json.dumps(file, indent=2))
    opened(page, service, "/flows")
    page.get_by_role("link", name="Import").click()
    page.get_by_label("File").set_input_files(path)
    bring = page.get_by_role("button", name=BRING)
    expect(bring).to_be_disabled()
    page.get_by_role("button", name=TRY).click()
    page.get_by_text("updated", exact=True).wait_for()
    page.get_by_text("Tag: tea → ").wait_for()
    page.get_by_role("listitem").filter(has_text=f"{mark} {mark}: updated (subject)").wait_for()
    assert tag_of(service, id) == "tea"
    clean(page)

    steps = [{"id": "tag", "type": "add_tag", "tag": "theirs"}]
    changed = service.api.patch(f"/workflows/{id}", json={"steps": steps})
    assert changed.status_code == 200, changed.text
    bring.click()
    page.get_by_role("alert").get_by_text("Someone changed this flow").wait_for()
    assert tag_of(service, id) == "theirs"
    page.get_by_role("button", name=TRY).click()
    page.get_by_text("Tag: theirs → ").wait_for()
    bring.press("Enter")
    page.get_by_role("heading", level=1, name=f"Tea {mark}").wait_for()
    assert page.url.endswith(f"/flows/workflows/{id}")
    assert tag_of(service, id) == HOSTILE[:40]
    assert "ran" not in page.title().split()


def test_what_is_wrong_with_a_file_is_shown_with_its_line_and_nothing_is_changed(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"
    mark = secrets.token_hex(4)
    step = {"type": "wait", "duration": HOSTILE}
    file = {"name": HOSTILE[:60] + mark, "definition": {"steps": [{"type": "exit"}, step]}}
    opened(page, service, "/flows/import")
    area = page.get_by_label("Content (JSON)")
    area.fill(json.dumps(file)[:-1])
    page.get_by_role("button", name=TRY).click()
    page.locator(".field .wrong", has_text="Not valid JSON").wait_for()
    area.fill(json.dumps(file, indent=1))
    page.get_by_role("button", name=TRY).click()
    wrong = page.get_by_role("listitem").filter(has_text="/definition/steps/1/duration")
    wrong.first.wait_for()
    clean(page)
    line = wrong.get_by_role("button").first
    text = json.dumps(file, indent=1).splitlines()
    [number] = [at for at, one in enumerate(text, 1) if '"duration"' in one]
    expect(line).to_have_text(f"Line {number}")
    line.press("Enter")
    expect(area).to_be_focused()
    selected = "area => area.value.slice(area.selectionStart, area.selectionEnd)"
    assert '"duration"' in area.evaluate(selected)
    names = [one["name"] for one in service.read("/workflows?limit=200")["data"]]
    assert not [name for name in names if name.endswith(mark)]
    page.reload()
    assert json.loads(area.input_value()) == file
    step["duration"] = "P1D"
    area.fill(json.dumps(file, indent=1))
    page.get_by_role("button", name=TRY).click()
    page.get_by_text("created", exact=True).wait_for()
    page.get_by_role("button", name=BRING).click()
    page.get_by_role("heading", level=1, name=str(file["name"])).wait_for()
    assert "ran" not in page.title().split()


def test_a_refused_file_has_its_lines_at_its_field_and_no_sentence_leads_in_a_circle(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"
    opened(page, service, "/flows/import")
    file = {"name": "Tea", "definition": {"steps": []}, "colour": "green"}
    page.get_by_label("Content (JSON)").fill(json.dumps(file, indent=1))
    page.get_by_role("button", name=TRY).click()
    page.get_by_role("alert").get_by_text("Fix the fields marked in red").wait_for()
    shown = page.locator("main").inner_text()
    places = [shown.find(text) for text in ("wrong on these lines:", "/colour", "Fix the fields")]
    assert places == sorted({*places} - {-1})


def test_nothing_else_is_chosen_while_a_file_is_tried(
    page: Page, service: Service, tmp_path: Path
) -> None:
    contacts = tmp_path / "contacts.csv"
    contacts.write_text("email\nada@example.com\n")
    opened(page, service, "/contacts/import")
    page.get_by_label("File").set_input_files(contacts)
    with saving(page, TRY, "POST", "**/contacts/import?*"):
        for label in ("File", "Unknown columns", "Evidence"):
            expect(page.get_by_label(label, exact=True)).to_be_disabled()
    expect(page.get_by_role("button", name=BRING)).to_be_enabled()
    expect(page.get_by_label("File")).to_be_enabled()
    opened(page, service, "/flows/import")
    page.get_by_label("Content (JSON)").fill('{"name": "Tea", "definition": {"steps": []}}')
    with saving(page, TRY, "POST", "**/definitions/import"):
        for label in ("File", "Content (JSON)", "Activate it if nothing prevents it"):
            expect(page.get_by_label(label, exact=True)).to_be_disabled()
        expect(page.get_by_role("button", name="Start over")).to_be_disabled()
    expect(page.get_by_role("button", name=BRING)).to_be_enabled()
    expect(page.get_by_label("File")).to_be_enabled()


def test_a_secret_is_sent_with_no_other_file_than_its_own(
    page: Page, service: Service, tmp_path: Path
) -> None:
    hook = {"source": "inbound_webhook", "contactLookup": "email", "contactPath": "email"}
    file = service.read(f"/workflows/{flow(service, secrets.token_hex(4))}/export")
    files = [
        {**file, "key": None, "definition": {**file["definition"], "trigger": trigger}}
        for trigger in ({**hook, "signed": True}, hook)
    ]
    opened(page, service, "/flows/import")
    text, secret = page.get_by_label("Content (JSON)"), page.get_by_label("Signing secret")
    text.fill(json.dumps(files[0]))
    secret.fill("a secret of sixteen or more")
    text.fill(json.dumps(files[1]))
    expect(secret).to_have_count(0)
    page.get_by_role("button", name=TRY).click()
    page.get_by_role("heading", name="Preview").wait_for()
    page.get_by_role("button", name=BRING).click()
    page.get_by_role("heading", level=1, name=file["name"]).wait_for()
    path = page.url.partition("/flows")[2]
    assert service.read(path)["trigger"]["signingSecretSet"] is False
    opened(page, service, "/flows/import")
    text.fill(json.dumps(files[0]))
    secret.fill("a secret of sixteen or more")
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**files[0], "name": "Other"}))
    page.get_by_label("File").set_input_files(other)
    expect(text).to_have_value(re.compile("Other"))
    expect(secret).to_have_value("")


def test_an_old_version_is_seen_and_brought_back_by_the_editor(
    page: Page, service: Service
) -> None:
    mark = secrets.token_hex(4)
    steps = [{"id": "first", "type": "add_tag", "tag": f"old-{mark}"}]
    body = {"name": f"Twice {mark}", "steps": steps, "state": "ACTIVE"}
    id = str(service.made("/workflows", body)["id"])
    steps = [{"id": "first", "type": "add_tag", "tag": "new"}]
    changed = service.api.patch(f"/workflows/{id}", json={"steps": steps})
    assert changed.json()["version"] == 2, changed.text
    opened(page, service, f"/flows/workflows/{id}/versions?q=version")
    search = page.get_by_role("searchbox", name="Search")
    page.get_by_role("link", name="since version 1").click()
    page.get_by_role("heading", name="Changes from version 1 to 2").wait_for()
    expect(search).to_have_value("version")
    page.get_by_role("row", name="first version").get_by_role("link", name="View").click()
    page.locator(".json").get_by_text(f"old-{mark}").first.wait_for()
    expect(search).to_have_value("version")
    confirmed(page, "Restore", "Open in editor")
    page.wait_for_url(f"**/flows/workflows/{id}/edit")
    page.get_by_text(f"old-{mark}").first.wait_for()
    assert tag_of(service, id) == "new"
    confirmed(page, "Save", "Save and go live")
    service.until(lambda: tag_of(service, id) == f"old-{mark}")
    assert service.read(f"/workflows/{id}")["version"] == 3
