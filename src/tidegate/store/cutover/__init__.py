"""Cutovers: change capture and logs, tables of users, versioned indexes and aliases."""
