"""SQL queries: one module per table group, one typed function per query."""
