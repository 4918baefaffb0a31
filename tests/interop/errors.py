"""What must fail, and how."""

from conversation import *


def rows():
    return iter(())
