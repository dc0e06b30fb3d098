"""Automations and workflows: checked, activated, versioned, drawn."""
