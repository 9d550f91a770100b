"""Cutovers: change capture, tables of users, versioned indexes."""
