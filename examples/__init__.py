"""Recipes for the local engine, with tasks of kinds that `tasks/` does not have."""
