"""People and their addresses: written, found, imported, opted out, erased."""
