"""Soak: random programs for a long time, beside kills, stops, faults and changes of addresses."""
