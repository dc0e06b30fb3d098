"""1. An event comes in: token → signature → body → key → lookup → contact → run."""
