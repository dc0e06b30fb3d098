"""What each error means and what to do about it: where the `type` of a problem leads."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from app.errors import CODES, Problem
from app.web.page import page
from app.web.routing import PUBLIC, Call, get

# Code → what it means, and what to do; HTML.
TEXTS: Mapping[str, tuple[str, str]] = {
    "malformed_json": (
        "The body cannot be read as JSON: it is empty, cut off, not UTF-8, nested too deeply, or"
        " has something in it that JSON has not, such as NaN.",
        "Send one JSON document by RFC 8259; the detail names the line and column where it ends"
        " to be one.",
    ),
    "malformed_request": (
        "The request can be read in more than one way, or not at all: a header is doubled or out"
        " of its bounds, or the query is not UTF-8.",
        "Mend what the detail names. A library that speaks HTTP does not send such requests.",
    ),
    "unauthenticated": (
        "No valid bearer came with the request: it is missing, expired, revoked, or was changed.",
        "Send one header <code>Authorization: Bearer</code> with an API key or an access token."
        " Access tokens live for fifteen minutes: get another at <code>/auth/refresh</code>.",
    ),
    "invalid_signature": (
        "A signing secret is set, and the signature of this request is missing, or was not made"
        " with that secret over exactly these bytes.",
        "Send <code>X-Service-Signature: sha256=</code> and the HMAC-SHA256 of the raw body in hex."
        " Sign the bytes that are sent, and not JSON that is written a second time.",
    ),
    "payment_required": (
        "What you asked for has to be paid first.",
        "Start a checkout with <code>POST /billing/checkout</code>, and ask again afterwards.",
    ),
    "forbidden": (
        "You are known here, but your role does not allow this.",
        "Ask an admin or owner of the workspace to do it, or for another role. A key acts with its"
        " own role, and never with more than the role of the member who made it.",
    ),
    "plan_required": (
        "The workspace's plan does not include this.",
        "An owner can change the plan; <code>GET /billing/plan</code> lists what each includes.",
    ),
    "quota_exceeded": (
        "The workspace has used up what its plan allows.",
        "Wait for the next period, delete what is not needed, or change the plan.",
    ),
    "workspace_suspended": (
        "The operator has suspended this workspace. Nothing in it is lost.",
        "Write to the operator.",
    ),
    "not_found": (
        "There is nothing at this path, or nothing by this id in your workspace. What belongs to"
        " another workspace is not found either.",
        "Check path and id, and that the key belongs to the right workspace. Paths do not end in a"
        " slash.",
    ),
    "contact_not_found": (
        "The event is in order, but no contact has the value that the lookup path leads to, and"
        " the trigger does not create contacts.",
        "Create the contact first, or switch <code>createContact</code> on in the trigger.",
    ),
    "method_not_allowed": (
        "There is something at this path, but not by this method.",
        "Use one of the methods in the <code>Allow</code> header.",
    ),
    "not_acceptable": (
        "The <code>Accept</code> header leaves out the only format that there is here.",
        "Accept <code>application/json</code>, or send no <code>Accept</code> header.",
    ),
    "request_timeout": (
        "The body did not arrive in time, and nothing was done.",
        "Send it again, whole and at once.",
    ),
    "conflict": (
        "The request does not go with what is there: another has the same address, say, or a"
        " template is still in use.",
        "Read the detail, and <code>existingId</code> when there is one; then change the request"
        " or what stands in its way.",
    ),
    "last_owner": (
        "A workspace always has an owner, and this would leave it without one.",
        "Make somebody else an owner first.",
    ),
    "invitation_used": (
        "This invitation has been accepted already.",
        "Sign in, or ask for another invitation.",
    ),
    "idempotency_in_progress": (
        "A request with the same <code>Idempotency-Key</code> is being answered at this moment.",
        "Send it again after a second: then you get the answer of the first. Nothing happens"
        " twice.",
    ),
    "stale": (
        "The resource has changed since you read it, and <code>If-Match</code> asks not to write"
        " over what you have not seen. Or it has no <code>ETag</code>, and so nothing matches.",
        "Read it again, make your change to what is there now, and send the new <code>ETag</code>."
        " Where a GET answers none, leave out <code>If-Match</code>.",
    ),
    "body_too_large": (
        "The body is larger than this installation reads.",
        "Send less at once; the detail says how much is read.",
    ),
    "unsupported_media_type": (
        "The <code>Content-Type</code> is not one that is read here, or the body is compressed.",
        "Send <code>Content-Type: application/json</code>, in UTF-8, without"
        " <code>Content-Encoding</code>.",
    ),
    "invalid": (
        "The request can be read, but what it says cannot be done.",
        "Every fault stands in <code>errors</code>, with a JSON Pointer (RFC 6901) to its place in"
        " the body, or the name of the query parameter. Mend them all and send it again.",
    ),
    "lookup_unresolved": (
        "The trigger's path leads to nothing in this body that a contact could be found by.",
        "Compare the path with the body: the detail names the nearest paths that do exist. Then"
        " mend the trigger's <code>contactPath</code>, or what is sent.",
    ),
    "chain_too_long": (
        "The request comes from an HTTP step of a run that stands at the end of a chain: ten runs"
        " had started one another before it. Nothing was started.",
        "Look for HTTP steps that call their own workspace's webhooks, and break the circle.",
    ),
    "not_activatable": (
        "The workflow or automation was not activated, for it could not run as it is.",
        "Mend every entry of <code>errors</code>; each points to its step or node.",
    ),
    "idempotency_mismatch": (
        "This <code>Idempotency-Key</code> belongs to another request of the last 24 hours.",
        "Make a new key for every new request, and repeat a request with the very same body.",
    ),
    "rate_limited": (
        "Too many requests came in too short a time. This one was not carried out.",
        "Wait as many seconds as <code>Retry-After</code> says; <code>RateLimit-Policy</code> says"
        " how many requests are taken in how many seconds.",
    ),
    "internal": (
        "The fault is ours. It has been logged.",
        "Try again; if it stays, tell the operator the <code>requestId</code>.",
    ),
    "billing_not_configured": (
        "This installation has no payment provider.",
        "The operator has to set one up; until then plans cannot be changed here.",
    ),
    "unavailable": (
        "Something that we depend on did not answer in time, or this process is being replaced.",
        "Send it again after <code>Retry-After</code> seconds. When the detail says that a change"
        " was not confirmed, read first, or send it with an <code>Idempotency-Key</code>.",
    ),
}


async def show(call: Call) -> Response:
    code = call.path("code")
    if code not in TEXTS:
        raise Problem("not_found", "There is no such error.")
    status, title = CODES[code]
    meaning, remedy = TEXTS[code]
    return page(title, f"<code>{code}</code>, status {status}", meaning, remedy)


routes = [get("/problems/{code}", show, can=PUBLIC, tx=None, gives={200: ("text/html",)})]
