"""The processes that move runs and deliver messages."""
