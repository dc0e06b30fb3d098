"""Whom a provider of single sign-on means."""

from __future__ import annotations

from app.database.db import Handle


async def insert(db: Handle, *, issuer: str, subject: str, user_id: str) -> None:
    """Raises errors.Duplicate when the subject is known."""
    await db.execute(
        """
        INSERT INTO user_identities (issuer, subject, user_id, created_at)
        VALUES (:issuer, :subject, :user_id, :now)
        """,
        issuer=issuer,
        subject=subject,
        user_id=user_id,
    )


async def user(db: Handle, *, issuer: str, subject: str) -> str | None:
    """The user's id."""
    user_id: str | None = await db.fetch_value(
        "SELECT user_id FROM user_identities WHERE issuer = :issuer AND subject = :subject",
        issuer=issuer,
        subject=subject,
    )
    return user_id
