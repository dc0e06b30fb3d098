"""1. An event comes in: token → signature → body → lookup → contact → run."""
