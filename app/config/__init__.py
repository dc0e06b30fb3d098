"""Settings and how they are parsed; plans, countries, time zones."""
