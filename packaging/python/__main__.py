"""The tool, in the place of this interpreter."""

import os
import sys

import roce

os.execv(roce.command(), ["roce", *sys.argv[1:]])
