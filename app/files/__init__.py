"""Imports and exports of contacts, as files with a row for each."""
