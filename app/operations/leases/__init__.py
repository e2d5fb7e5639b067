"""Leases: workers of a group share its partitions, decided by the order of their claims."""
