"""Planner rules, one per file: pure functions from plan to plan, safe to apply twice."""
