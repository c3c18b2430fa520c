"""Stored results of small problems, with which a rewritten core is compared."""
