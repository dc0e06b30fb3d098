"""The web console: its built files, and how they are served."""
