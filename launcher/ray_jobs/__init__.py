"""Jobs on a Ray cluster: one that already runs, or a head that lives as long as the launcher."""
