"""Whom a provider of single sign-on means."""

from __future__ import annotations

from app.database.db import Handle


async def insert(db: Handle, *, issuer: str, subject: str, user_id: str) -> None:
    """Raises errors.Duplicate when the subject is known, or the issuer's of this user."""
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


async def is_linked(db: Handle, *, issuer: str, user_id: str) -> bool:
    """Return whether the user has a subject of this issuer."""
    subject = await db.fetch_value(
        "SELECT subject FROM user_identities WHERE issuer = :issuer AND user_id = :user_id",
        issuer=issuer,
        user_id=user_id,
    )
    return subject is not None


async def release(db: Handle, *, email_key: str) -> int:
    """Forget whom the providers mean by the account of this address; how many they were."""
    released = await db.fetch_values(
        """
        DELETE FROM user_identities
        WHERE user_id IN (SELECT id FROM users WHERE email_key = :email_key)
        RETURNING subject
        """,
        email_key=email_key,
    )
    return len(released)
