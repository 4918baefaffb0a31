"""Rows: work requests between two queue pairs, each ours or rxe's, and what must come of them."""
