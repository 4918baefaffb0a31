"""Tests of the adapter against other implementations: the kernel's rxe, and stock programs."""
