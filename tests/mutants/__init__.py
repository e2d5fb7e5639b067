"""Mutants of syncs, renames and locks: each left out or moved, for the tests to notice."""
