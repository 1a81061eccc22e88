"""Checks before a start, by what they look at; each answers findings and changes nothing."""
