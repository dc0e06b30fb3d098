"""Keys that are handed on as keyword arguments, so that a type checker sees what they name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class WorkspaceKey(TypedDict):
    workspace_id: str


class RowKey(WorkspaceKey):
    id: str


class BroadcastKey(WorkspaceKey):
    broadcast_id: str


class DefinitionKey(WorkspaceKey):
    definition_id: str


class SegmentKey(WorkspaceKey):
    segment_id: str


class ContactKey(WorkspaceKey):
    contact_id: str


class ContactsKey(WorkspaceKey):
    contact_ids: Sequence[str]


class EntrantKey(DefinitionKey):
    contact_id: str


class AddressKey(WorkspaceKey):
    channel: str
    address: str


class HashedAddressKey(WorkspaceKey):
    address_hash: str


class ProviderKey(WorkspaceKey):
    channel: str
    provider: str
