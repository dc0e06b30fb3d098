"""The settings of a workspace, changed on their screens and seen through the API afterwards."""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import (
    HOSTILE,
    PASSWORD,
    Service,
    Watch,
    hasty,
    opened,
    signed_in,
    signed_in_by_form,
    switched,
)
from tests.browser.test_acts import confirmed
from tests.browser.test_screens import clean, violations

DOMAIN = "tidings.example"  # of the demo's owner


def test_an_owner_claims_a_domain_for_single_sign_on_and_releases_it(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "4"
    opened(page, service, "/settings/sign-in")
    page.get_by_text("No domains claimed").wait_for()
    field = page.get_by_label("Domain", exact=True)
    field.fill(HOSTILE[:20])
    page.get_by_role("button", name="Claim domain").click()
    page.locator(".field .wrong", has_text="Must be a domain").wait_for()
    expect(field).to_be_focused()
    field.fill("gmail.com")
    page.get_by_role("button", name="Claim domain").click()
    page.get_by_role("alert").get_by_text("Anybody can have an address").wait_for()
    assert domains(service) == {}
    verified(page, service)
    opened(page, service, "/settings/sign-in")
    expect(field).to_have_value("gmail.com")
    field.fill(DOMAIN)
    page.get_by_label("Role of new members").select_option("editor")
    field.press("Enter")
    row = page.get_by_role("row", name=DOMAIN)
    row.wait_for()
    assert domains(service) == {DOMAIN: "editor"}
    clean(page)
    row.get_by_role("button", name="Change role").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Role").select_option("viewer")
    dialog.get_by_role("button", name="Change role").click()
    dialog.wait_for(state="hidden")
    expect(row).to_contain_text("viewer")
    assert domains(service) == {DOMAIN: "viewer"}
    confirmed(page, "Release", within=row)
    page.get_by_text("No domains claimed").wait_for()
    assert domains(service) == {}


def verified(page: Page, service: Service) -> None:
    """The address of the demo's owner, by the link in a letter that its screen asks for, and that
    only its addressee can read."""

    def letter() -> str:
        with page.expect_response(re.compile("/sandbox/messages")) as answer:
            opened(page, service, "/inbox")
        found = re.findall(r"email_verification&token=([\w.~-]+)", answer.value.text())
        return str(found[0]) if found else ""

    opened(page, service, "/settings/account")
    page.get_by_role("button", name="Resend email").click()
    page.get_by_text("An email with a link is on its way.").wait_for()
    token = service.until(letter)
    answer = service.api.post("/auth/email/verify", json={"token": token})
    assert answer.status_code < 300, answer.text


def domains(service: Service) -> dict[str, str]:
    found = service.read("/settings/sign-in-domains")["data"]
    return {one["domain"]: one["role"] for one in found}


def test_what_was_copied_is_said_of_that_secret_alone(page: Page, service: Service) -> None:
    """A key is shown once: who believes the second one copied loses it."""
    opened(page, service, "/settings/keys")
    secret = page.locator(".note code")
    page.evaluate(
        "() => { navigator.clipboard.writeText = async text => { window.copied = text } }"
    )
    for name in ("First", "Second"):
        page.get_by_label("Name").fill(f"{name} {secrets.token_hex(4)}")
        page.get_by_role("button", name="Create key").click()
        page.get_by_role("button", name="Copy", exact=True).click()
        page.get_by_role("button", name="Copied").wait_for()
        assert page.evaluate("window.copied") == secret.inner_text()
    page.get_by_role("button", name="Done").click()
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')) }")
    page.get_by_label("Name").fill(f"Third {secrets.token_hex(4)}")
    page.get_by_role("button", name="Create key").click()
    page.get_by_role("button", name="Copy", exact=True).click()
    page.get_by_role("button", name="Not copied").wait_for()


def test_an_endpoint_gets_the_events_that_are_chosen_for_it(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"
    opened(page, service, "/settings/endpoints")
    new = page.locator("section", has=page.get_by_role("heading", name="New endpoint"))
    new.get_by_label("URL").fill("ftp://example.com/chosen")
    new.get_by_label("Description").fill(f"Chosen {HOSTILE}")
    new.get_by_label("Run failed").check()
    new.get_by_role("button", name="Add endpoint").click()
    new.locator(".field .wrong").wait_for()
    new.get_by_label("URL").fill("https://example.com/chosen")
    new.get_by_role("button", name="Add endpoint").click()
    page.get_by_text("It is shown only once").wait_for()
    assert endpoint(service)["types"] == ["run.failed"]
    own = page.locator("section", has=page.get_by_role("heading", name="Chosen"))
    own.get_by_role("button", name="Edit").click()
    expect(own.get_by_label("Run failed")).to_be_checked()
    own.get_by_label("Run failed").uncheck()
    own.get_by_label("Message delivered", exact=True).press("Space")
    own.get_by_label("Description").fill("Chosen again")
    own.get_by_role("button", name="Save").press("Enter")
    page.get_by_role("heading", name="Chosen again").wait_for()
    found = endpoint(service)
    assert (found["types"], found["description"]) == (["message.delivered"], "Chosen again")
    for label, is_enabled in (("Disable", False), ("Enable", True)):
        confirmed(page, label, within=own)
        assert endpoint(service)["enabled"] is is_enabled
    own.get_by_role("button", name="Replay").click()
    since = own.get_by_label("Since")
    since.fill("")
    own.get_by_role("dialog").get_by_role("button", name="Replay").click()
    expect(since).to_be_focused()
    own.locator(".field .wrong", has_text="Choose a day").wait_for()


def test_a_change_of_an_endpoint_takes_back_nothing_that_somebody_else_changed(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "412"
    mark = secrets.token_hex(4)
    body = {"url": f"https://example.com/{mark}", "description": mark, "types": ["run.failed"]}
    path = f"/event-endpoints/{service.made('/event-endpoints', body)['id']}"
    opened(page, service, "/settings/endpoints")
    own = page.locator("section", has=page.get_by_role("heading", name=mark))
    own.get_by_role("button", name="Edit").click()
    own.get_by_label("Description").fill(f"Mine {mark}")
    own.get_by_text("You have unsaved changes.").wait_for()
    theirs = service.api.patch(path, json={"types": ["message.sent"]})
    assert theirs.status_code == 200, theirs.text
    own.get_by_role("button", name="Save").click()
    own.get_by_role("alert").get_by_text("Someone else changed this").wait_for()
    assert service.read(path)["types"] == ["message.sent"]
    expect(own.get_by_label("Message sent")).to_be_checked()
    own.get_by_role("button", name="Save").click()
    page.get_by_role("heading", name=f"Mine {mark}").wait_for()
    stored = service.read(path)
    assert (stored["types"], stored["description"]) == (["message.sent"], f"Mine {mark}")

    answers = [{"replayed": 1_000, "more": True}, {"replayed": 3, "more": False}]
    asked: list[Any] = []

    def replay(route: Route) -> None:
        asked.append(route.request.post_data_json)
        route.fulfill(status=202, json=answers[len(asked) - 1])

    page.route(f"**{path}/replay", replay)
    own.get_by_role("button", name="Replay").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_label("Since").fill("2026-03-02T10:00")
    dialog.get_by_role("button", name="Replay").click()
    own.get_by_text("1003 events are sent again.").wait_for()
    assert len(asked) == 2
    assert asked[0] == asked[1]
    assert asked[0]["since"].startswith("2026-03-0")
    service.api.delete(path)


def test_a_change_of_a_member_gives_back_no_role_that_was_taken(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "412"
    email = service.joined("admin")

    def member() -> Any:
        [found] = [one for one in service.read("/memberships")["data"] if one["email"] == email]
        return found

    def given(role: str) -> None:
        answer = service.api.patch(f"/memberships/{member()['id']}", json={"role": role})
        assert answer.status_code == 200, answer.text

    opened(page, service, "/settings/members")
    given("editor")
    page.get_by_role("row", name=email).get_by_role("button", name="Change role").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Role")).to_have_value("editor")  # not as the list had it
    dialog.get_by_label("Can send broadcasts too").check()
    given("viewer")
    dialog.get_by_role("button", name="Change role").click()
    dialog.get_by_text("Someone else changed this").wait_for()
    assert member()["role"] == "viewer"
    expect(dialog.get_by_label("Role")).to_have_value("viewer")
    dialog.get_by_label("Role").select_option("editor")
    dialog.get_by_role("button", name="Change role").click()
    page.get_by_role("row", name=email).get_by_text("editor, sends broadcasts").wait_for()
    assert (member()["role"], member()["sendsBroadcasts"]) == ("editor", True)


def in_south(page: Page, service: Service, role: str) -> tuple[str, Service]:
    """Open the page of South's members, by the address of one who has North as well, and its
    owner."""
    email, _ = service.registered("Wanda", "North")
    _, bearer = service.registered("Sol", "South")
    sol = service.acting(bearer)
    sol.made("/memberships/invitations", {"email": email, "role": role})
    sol.accepted(sol.letter("invitation", email), "Wanda")
    signed_in(page, service, email)
    switched(page, "South")
    page.get_by_role("heading", level=1, name="South").wait_for()
    opened(page, service, "/settings/members")
    return email, sol


def test_whoever_takes_a_role_from_themselves_sees_at_once_what_is_left(
    stranger: Page, service: Service
) -> None:
    email, _ = in_south(stranger, service, "admin")
    stranger.get_by_role("heading", name="Invite").wait_for()
    row = stranger.get_by_role("row", name=email)
    row.get_by_role("button", name="Change role").click()
    dialog = stranger.get_by_role("dialog")
    dialog.get_by_label("Role").select_option("viewer")
    dialog.get_by_role("button", name="Change role").click()
    stranger.get_by_text("Wanda, viewer").wait_for()
    expect(stranger.get_by_role("heading", name="Invite")).to_have_count(0)
    expect(stranger.get_by_role("button", name="Change role")).to_have_count(0)


def test_a_member_leaves_a_workspace_and_goes_on_in_another(
    stranger: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "status of 40"  # of a session that is over, and of a workspace that was left
    email, sol = in_south(stranger, service, "viewer")
    expect(stranger.get_by_role("button", name="Leave workspace")).to_have_count(1)
    confirmed(stranger, "Leave workspace")
    stranger.get_by_role("heading", level=1, name="Sign in").wait_for()
    assert email not in {one["email"] for one in sol.read("/memberships")["data"]}
    signed_in_by_form(stranger, service, email)
    stranger.get_by_role("heading", level=1, name="North").wait_for()


def test_whoever_left_their_only_workspace_is_told_what_to_do(
    stranger: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "status of 40"
    email = service.joined("viewer")
    signed_in(stranger, service, email, "/settings/members")
    stranger.get_by_role("button", name="Leave workspace").click()
    dialog = stranger.get_by_role("dialog")
    dialog.get_by_text("what you did not save in this tab is lost, in other workspaces").wait_for()
    dialog.get_by_role("button", name="Leave workspace").click()
    stranger.get_by_role("heading", level=1, name="Sign in").wait_for()
    stranger.get_by_label("Email").fill(email)
    stranger.get_by_label("Password").fill(PASSWORD)
    stranger.get_by_role("button", name="Sign in").click()
    alert = stranger.get_by_role("alert")
    alert.get_by_text(
        "You are not a member of any workspace; ask somebody to invite you."
    ).wait_for()
    expect(alert).to_have_count(1)
    assert violations(stranger) == []


def test_an_act_far_down_a_list_leaves_the_page_where_it_is(page: Page, service: Service) -> None:
    mark = secrets.token_hex(4)
    ids = [
        service.made("/suppressions", {"channel": "email", "address": f"{mark}-{n}@example.com"})
        for n in range(40)
    ]
    opened(page, service, "/settings/suppressions?reason=manual")
    row = page.get_by_role("row", name=ids[2]["address"])
    row.get_by_role("button", name="Lift").scroll_into_view_if_needed()
    confirmed(page, "Lift", within=row)
    expect(row).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    assert page.evaluate("scrollY") > 0
    for one in ids:
        service.api.delete(f"/suppressions/{one['id']}")


def endpoint(service: Service) -> Any:
    all = service.read("/event-endpoints")["data"]
    [found] = [one for one in all if one["url"] == "https://example.com/chosen"]
    return found


def test_suppressions_are_narrowed_by_what_they_are(page: Page, service: Service) -> None:
    mark = secrets.token_hex(4)
    kept, other = f"kept-{mark}@example.com", f"other-{mark}@example.com"
    ids = [
        service.made("/suppressions", {"channel": "email", "address": address})["id"]
        for address in (kept, other)
    ]
    opened(page, service, "/settings/suppressions")
    page.get_by_label("Reason").select_option("manual")
    page.get_by_label("Search").fill(kept)
    page.wait_for_url("**/settings/suppressions?reason=manual&address=kept*")
    expect(page.locator("tbody tr")).to_have_count(1)
    confirmed(page, "Lift", within=page.get_by_role("row", name=kept))
    page.get_by_text("No suppressed addresses match.").wait_for()
    expect(page.get_by_role("heading", level=1)).to_be_focused()  # for its button is gone
    assert [service.api.delete(f"/suppressions/{id}").status_code for id in ids] == [404, 204]


def test_a_plan_that_was_paid_for_is_shown_by_itself(stranger: Page, service: Service) -> None:
    email, bearer = service.registered("Pia", "Prints")
    own = service.acting(bearer)
    page = stranger.context.new_page()
    page.add_init_script(hasty())
    signed_in(page, service, email, "/settings/plan")
    page.get_by_role("button", name="Choose growth").wait_for()
    own.pays("growth")
    page.get_by_role("button", name="Downgrade to", exact=False).first.wait_for()
    expect(page.locator(".facts").get_by_text("growth")).to_be_visible()


def test_what_was_found_about_a_channel_goes_with_the_settings_that_it_was_about(
    stranger: Page, service: Service
) -> None:
    email, bearer = service.registered("Vera", "Verdicts")
    own = service.acting(bearer)
    url, sender = "smtps://vera:secret@mail.example.com", "vera@example.com"
    settings = {"provider": "smtp", "url": url, "from": sender}
    answer = own.api.put("/settings/channels/email", json=settings)
    assert answer.is_success, answer.text
    page = stranger
    found = {"ok": False, "findings": [{"code": "refused", "message": "The key is refused."}]}
    page.route("**/settings/channels/email/verify", lambda route: route.fulfill(json=found))
    signed_in(page, service, email, "/settings/channels")
    mail = page.locator("section", has=page.get_by_role("heading", name="Email"))
    for store in (True, False):
        mail.get_by_role("button", name="Verify").click()
        mail.get_by_text("The key is refused.").wait_for()
        if store:
            mail.get_by_role("button", name="Use your own provider").click()
            mail.get_by_label("Provider", exact=True).select_option("smtp")
            mail.get_by_label("URL").fill(url)
            mail.get_by_label("Sender").fill(sender)
            mail.get_by_role("button", name="Save").click()
        else:
            confirmed(page, "Remove", within=mail)
        expect(mail.get_by_text("The key is refused.")).to_have_count(0)


def test_a_workspace_is_made_paid_for_looked_through_and_deleted(
    stranger: Page, service: Service, watch: Watch
) -> None:
    page, watch.expected = stranger, "4"
    email, _ = service.registered("Wanda", "First")
    name = "Second <b>shop</b>"
    signed_in(page, service, email, "/settings/account")
    page.get_by_label("Name of the new workspace").fill(name)
    page.get_by_role("button", name="Create and switch").press("Enter")
    page.get_by_role("heading", level=1, name=name).wait_for()

    opened(page, service, "/settings/plan")
    page.get_by_role("button", name="Choose scale").click()
    page.wait_for_url("**/sandbox/checkouts/**")
    page.get_by_role("button", name="Pay").click()
    page.wait_for_url("**/console/settings/plan")
    confirmed(page, "Downgrade to growth")
    page.get_by_role("row", name="growth").get_by_text("from").wait_for()
    clean(page)
    confirmed(page, "Keep scale")
    page.get_by_role("button", name="Downgrade to growth").wait_for()

    opened(page, service, "/settings/keys")
    page.get_by_label("Name", exact=True).fill(HOSTILE)
    page.get_by_label("Expires").fill("2001-01-01T09:00")
    page.get_by_role("button", name="Create key").click()
    page.locator(".field .wrong").wait_for()
    page.get_by_label("Expires").fill("2099-01-01T09:00")
    page.get_by_role("button", name="Create key").click()
    expect(page.locator("tbody td[data-name=Expires]")).to_contain_text("2099")
    opened(page, service, "/settings/audit")
    page.get_by_role("searchbox", name="Action").fill("api_key.created")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("td[data-name=Who] a").click()
    page.wait_for_url("**/settings/audit?actor=*")
    page.get_by_role("searchbox", name="Action").fill("workspace.deleted")
    page.get_by_text("No entries match.").wait_for()
    page.get_by_role("searchbox", name="Action").fill("")
    page.get_by_role("button", name="By anyone").press("Enter")
    page.wait_for_url("**/settings/audit")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export all").click()
    lines = Path(download.value.path()).read_text("utf-8").splitlines()
    assert "api_key.created" in {json.loads(line)["action"] for line in lines}

    opened(page, service, "/settings/workspace")
    page.get_by_role("button", name="Delete workspace").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Delete permanently").click()
    field = dialog.get_by_label("The name of the workspace")
    expect(field).to_be_focused()
    field.fill(name)
    dialog.get_by_role("button", name="Delete permanently").click()
    page.get_by_role("button", name="Sign in").wait_for()
    signed_in_by_form(page, service, email)
    page.get_by_role("heading", level=1, name="First").wait_for()
    opened(page, service, "/settings/account")
    expect(page.locator("tbody tr")).to_have_count(1)
