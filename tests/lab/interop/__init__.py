"""The suite `interop`: our adapter against the kernel's rxe in a guest."""
