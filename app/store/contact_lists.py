"""Lists of contacts by their filters, newest first; and the tags and fields to filter by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.database.db import Handle
from app.store import contacts, keyset
from app.store.contacts import Contact

# How the texts begin that a search looks at, and that have an index of their own.
EMAIL = "c.email_key ~>=~ :q_email AND c.email_key ~<~ :q_email_end"
NAME = "c.name_key ~>=~ :q_name AND c.name_key ~<~ :q_name_end"
LAST_NAME = "c.last_name_key ~>=~ :q_name AND c.last_name_key ~<~ :q_name_end"
PHONE = "c.phone >= :q_phone AND c.phone < :q_phone_end"

# What each filter says of a contact `c`.
CLAUSES = {
    "email_key": "c.email_key = :email_key",
    "phone": "c.phone = :phone",
    "tag": """EXISTS (SELECT 1 FROM contact_tags t WHERE t.workspace_id = c.workspace_id
                      AND t.contact_id = c.id AND t.tag = :tag)""",
    "created_after": "c.created_at > :created_after",
    "created_before": "c.created_at < :created_before",
    "updated_after": "c.updated_at > :updated_after",
    "ids": "c.id = ANY(:ids)",
    "q_email": f"({EMAIL} OR {NAME} OR {LAST_NAME} OR {PHONE})",
    **dict.fromkeys(("q_email_end", "q_name", "q_name_end", "q_phone", "q_phone_end"), "TRUE"),
}
FIELDS = 5  # of metadata, in one question
HAS_FIELD = """EXISTS (SELECT 1 FROM contact_fields f WHERE f.workspace_id = c.workspace_id
                      AND f.contact_id = c.id AND f.name = :name_# AND f.value = :value_#)"""
for _number in range(FIELDS):
    CLAUSES[f"name_{_number}"] = HAS_FIELD.replace("#", str(_number))
    CLAUSES[f"value_{_number}"] = "TRUE"  # it is said beside the name

# Written so that no index has it: that of the times leads to all that were changed since, to be
# sorted then.
IN_PASSING = {"updated_after": "CASE WHEN c.updated_at > :updated_after THEN TRUE ELSE FALSE END"}

# Where the order of ids is kept for those who have a tag or a field: it leads to the contacts.
LEADS = {
    "name_0": ("contact_fields", {"name_0": "l.name = :name_0", "value_0": "l.value = :value_0"}),
    "tag": ("contact_tags", {"tag": "l.tag = :tag"}),
}


async def page(
    db: Handle, *, workspace_id: str, filters: Mapping[str, Any], before: str | None, limit: int
) -> tuple[list[Contact], str | None]:
    """A page of contacts, the newest first, as contacts.newest has them. Filters: those of CLAUSES;
    and `metadata`, name → text. Of `updated_after` and what begins with a text, searches.page
    bounds the cost."""
    filters = numbered(await keyset.by_time(db, "con", filters))
    return await page_by_walking(db, workspace_id, filters, before, limit)


def numbered(filters: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in filters.items() if name != "metadata"}
    for number, (name, value) in enumerate(filters.get("metadata", {}).items()):
        plain |= {f"name_{number}": name, f"value_{number}": value}
    return plain


async def page_by_walking(
    db: Handle, workspace_id: str, filters: Mapping[str, Any], before: str | None, limit: int
) -> tuple[list[Contact], str | None]:
    """Walk through the contacts in the order of their ids, until there are enough."""
    looks = {**CLAUSES, **IN_PASSING}
    lead = next((name for name in LEADS if name in filters), None)
    if lead is None:
        narrowed, values = keyset.narrowed(looks, filters, before, "c.id")
        sql = f"""
            SELECT c.* FROM contacts c
            WHERE c.workspace_id = :workspace_id {narrowed}
            ORDER BY c.id DESC
            LIMIT :limit
            """
    else:
        table, clauses = LEADS[lead]
        narrowed, values = keyset.narrowed({**looks, **clauses}, filters, before, "l.contact_id")
        # CROSS: SQLite reads the tables in this order; PostgreSQL finds it by itself.
        sql = f"""
            SELECT c.* FROM {table} l CROSS JOIN contacts c
            WHERE l.workspace_id = :workspace_id
              AND c.workspace_id = l.workspace_id AND c.id = l.contact_id {narrowed}
            ORDER BY l.contact_id DESC
            LIMIT :limit
            """
    return await contacts.newest(db, sql, {**values, "limit": limit}, workspace_id=workspace_id)


async def page_by_sorting(
    db: Handle, workspace_id: str, filters: Mapping[str, Any], before: str | None, limit: int
) -> tuple[list[Contact], str | None]:
    """Find all that fit, and sort them. It costs what was updated since then, or has these ids,
    however many others there are: MATERIALIZED keeps the planner from walking through all contacts
    in the order of their ids, in the hope of meeting the few that are wanted. Between the two
    statements a contact may be erased: the second value is the id below which there may be more,
    and None when there are none."""
    narrowed, values = keyset.narrowed(CLAUSES, filters, before, "c.id")
    ids = await db.fetch_values(
        f"""
        WITH found AS MATERIALIZED (
            SELECT c.id FROM contacts c
            WHERE c.workspace_id = :workspace_id {narrowed}
        )
        SELECT id FROM found ORDER BY id DESC LIMIT :limit
        """,
        workspace_id=workspace_id,
        limit=limit,
        **values,
    )
    rows, rest = await contacts.newest(
        db,
        # LIMIT: a planner that must not sort would walk through everybody, as in contacts.by_ids.
        """
        SELECT c.* FROM contacts c
        WHERE c.workspace_id = :workspace_id AND c.id = ANY(:ids)
        LIMIT :limit
        """,
        {"ids": ids, "limit": limit},
        workspace_id=workspace_id,
    )
    return rows, rest or (ids[-1] if len(ids) == limit else None)


async def tag_names(db: Handle, *, workspace_id: str, after: str | None, limit: int) -> list[str]:
    """Read tags in alphabetical order. Each is one look into the index, however many contacts have
    it."""
    return await db.fetch_values(
        """
        WITH RECURSIVE names (tag, n) AS (
            SELECT (SELECT min(t.tag) FROM contact_tags t
                    WHERE t.workspace_id = :workspace_id AND t.tag > :after), 1
            UNION ALL
            SELECT (SELECT min(t.tag) FROM contact_tags t
                    WHERE t.workspace_id = :workspace_id AND t.tag > names.tag), n + 1
            FROM names WHERE names.tag IS NOT NULL AND n < :limit
        )
        SELECT tag FROM names WHERE tag IS NOT NULL ORDER BY n
        """,
        workspace_id=workspace_id,
        after=after or "",
        limit=limit,
    )


async def field_names(db: Handle, *, workspace_id: str, limit: int) -> list[str]:
    """The names of all metadata fields; found like the tags."""
    return await db.fetch_values(
        """
        WITH RECURSIVE names (name, n) AS (
            SELECT (SELECT min(f.name) FROM contact_fields f
                    WHERE f.workspace_id = :workspace_id), 1
            UNION ALL
            SELECT (SELECT min(f.name) FROM contact_fields f
                    WHERE f.workspace_id = :workspace_id AND f.name > names.name), n + 1
            FROM names WHERE names.name IS NOT NULL AND n < :limit
        )
        SELECT name FROM names WHERE name IS NOT NULL ORDER BY n
        """,
        workspace_id=workspace_id,
        limit=limit,
    )
