"""Automations and workflows: checked, activated, their credentials sealed, what they start."""
