"""The suite "conform": `roce conform` against the rxe of stock Debian kernels under QEMU."""
