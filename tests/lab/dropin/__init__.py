"""The suite `dropin`: stock programs on the library."""
