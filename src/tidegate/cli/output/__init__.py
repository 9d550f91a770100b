"""Output of commands: tables, JSON, progress, errors."""
