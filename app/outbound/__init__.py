"""4. Others are notified: events recorded, signed, posted, tried again."""
