"""Types of the ids of resources: a prefix, and a UUIDv7 in base32 (TypeID)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field


def _id(prefix: str) -> Any:
    return Field(
        pattern=f"^{prefix}_[0-9a-hjkmnp-tv-z]{{26}}$",
        examples=[f"{prefix}_01kk8f3m9xe2vb4z7c1q5t6w8y"],
    )


WorkspaceId = Annotated[str, _id("ws")]
UserId = Annotated[str, _id("usr")]
MembershipId = Annotated[str, _id("mem")]
InvitationId = Annotated[str, _id("inv")]
KeyId = Annotated[str, _id("key")]
ContactId = Annotated[str, _id("con")]
SegmentId = Annotated[str, _id("seg")]
TopicId = Annotated[str, _id("top")]
BroadcastId = Annotated[str, _id("bro")]
EventId = Annotated[str, _id("evt")]
TemplateId = Annotated[str, _id("tpl")]
AutomationId = Annotated[str, _id("aut")]
WorkflowId = Annotated[str, _id("wfl")]
RequestId = Annotated[str, _id("req")]
RunId = Annotated[str, _id("run")]
MessageId = Annotated[str, _id("msg")]
AttemptId = Annotated[str, _id("att")]
EndpointId = Annotated[str, _id("ep")]
EventAttemptId = Annotated[str, _id("eva")]
CapturedId = Annotated[str, _id("cap")]
FaultId = Annotated[str, _id("flt")]
SuppressionId = Annotated[str, _id("sup")]
ConsentId = Annotated[str, _id("cns")]
CheckoutId = Annotated[str, _id("chk")]
AuditLogId = Annotated[str, _id("aud")]
