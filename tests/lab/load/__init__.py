"""Measurements under load: stock perftest between hosts, as ratios."""
