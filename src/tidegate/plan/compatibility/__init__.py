"""Checks whether the state of a run fits a changed plan."""
