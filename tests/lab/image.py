"""Images that a guest boots from: a stock Debian kernel, and an initramfs that is built here.

The cache keeps them, so that only the first run is slow.
"""

import hashlib
import lzma
import os
import re
import shutil
from pathlib import Path

from lab.host import REPO, cache_dir, cache_lock, output_of, scratch_dir
from lab.report import say
from lab.requirements import Kernel, package_versions

# Programs of the host: they build and boot the guest, make its network, and read captures.
HOST_PACKAGES = ["qemu-system-x86", "busybox-static", "cpio", "kmod", "iproute2", "tshark"]

# Programs that are copied into the guest, by their packages. Where busybox has one of the same
# name, its shell takes its own unless the path is written out (/bin/ip).
GUEST_PROGRAMS = {
    "iproute2": ["rdma"],
    "ibverbs-utils": [
        "ibv_devinfo",
        *(f"ibv_{kind}_pingpong" for kind in ["rc", "uc", "ud", "srq"]),
    ],
    "rdmacm-utils": [
        *("rping", "ucmatose", "udaddy", "mckey"),
        *("rdma_client", "rdma_server", "rdma_xclient", "rdma_xserver"),
        *("rstream", "riostream", "udpong", "rcopy"),
    ],
    "socat": ["socat"],
    "perftest": [
        f"ib_{verb}_{what}"
        for verb in ["write", "read", "send", "atomic"]
        for what in ["bw", "lat"]
    ],
}

# Files of further packages that the guest needs and that `ldd` does not show, because they are
# opened at run time. Of the verbs drivers only rxe's: libibverbs warns about every other one that
# finds no device.
GUEST_FILES = {
    "ibverbs-providers": [
        "/etc/libibverbs.d/rxe.driver",
        "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so",
    ],
    "librdmacm1": ["/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"],
    "libgcc-s1": ["/lib/x86_64-linux-gnu/libgcc_s.so.1"],  # pthread_exit loads it
}

# Python's interpreter, its packages, and the directory of Debian's modules.
PYTHON = "/usr/bin/python3"
PYTHON_PACKAGES = ["python3-minimal", "python3-pyverbs"]
PYTHON_PATH = "/usr/lib/python3/dist-packages"

# Packages without which no guest can be built and booted.
GUEST_PACKAGES = [*HOST_PACKAGES, *GUEST_PROGRAMS, *GUEST_FILES, *PYTHON_PACKAGES]

# Our files for the guest. The Python programs and their modules go into its root directory.
SOURCES = Path(__file__).resolve().parent / "in_guest"
SCRIPTS = {"init.sh": "init", "rping.sh": "bin/guest-rping"}
# Modules that others load only when they need them.
PYTHON_LATE = ["locale"]
PYTHON_FILES = [REPO / "agent/agent.py", SOURCES / "cm_steps.py"]

# Kernel modules in the order of loading. rdma_rxe asks the crypto API for "crc32" and does not
# depend on it by name.
MODULES = [
    *("virtio_pci", "virtio_console", "virtio_net", "crc32_generic"),
    *("rdma_rxe", "ib_uverbs", "rdma_ucm"),
]

# Modules that a suite loads when it wants them: `load_command`.
LATE_MODULES = ["nvmet-rdma"]


def load_command(module):
    """Loads one of the late modules in a guest. What it depends on may be there already."""
    return f"for name in $(cat /modules/{module}); do insmod /modules/$name; done 2>/dev/null"


def prepare(kernel_name):
    """Builds what is missing; returns (kernel image, initramfs)."""
    kernel = Kernel(kernel_name)
    with cache_lock():
        return kernel.image, initramfs(kernel)


def initramfs(kernel):
    """The guest's file system, named by a hash of everything it is made from."""
    sources = [*(SOURCES / name for name in SCRIPTS), *PYTHON_FILES]
    recipe = [
        kernel.version,
        package_versions(GUEST_PACKAGES),
        *(GUEST_PROGRAMS, GUEST_FILES, MODULES, LATE_MODULES),
        *(path.read_text() for path in [*sources, Path(__file__)]),
    ]
    digest = hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]
    image = cache_dir() / f"initramfs-{kernel.version}-{digest}.cpio"
    if image.exists():
        return image
    say(f"building {image.name}")
    with scratch_dir() as scratch:
        root = scratch / "root"
        fill_root(root, kernel)
        archive = scratch / "archive"
        # Not compressed: an emulated guest takes longer to unpack it than to read it.
        output_of(["sh", "-c", f"find . | cpio --quiet -o -H newc >{archive}"], cwd=root)
        for old in cache_dir().glob(f"initramfs-{kernel.version}-*.cpio"):
            old.unlink()
        archive.rename(image)
    return image


def with_files(initramfs, directory, target):
    """The same file system with the files of a directory, as one image: the kernel unpacks one
    archive after the other.
    """
    shutil.copy(initramfs, target)
    output_of(["sh", "-c", f"find . | cpio --quiet -o -H newc >>{target}"], cwd=directory)
    return target


def fill_root(root, kernel):
    for directory in ["bin", "dev", "etc", "modules", "proc", "sys", "tmp"]:
        (root / directory).mkdir(parents=True)
    for script, place in SCRIPTS.items():
        shutil.copy(SOURCES / script, root / place)
        (root / place).chmod(0o755)
    add_busybox(root)
    for program in [p for programs in GUEST_PROGRAMS.values() for p in programs]:
        source = shutil.which(program, path="/usr/bin:/usr/sbin:/bin:/sbin")
        target = root / "bin" / program
        target.unlink(missing_ok=True)
        shutil.copy(source, target)
        copy_libraries(root, source)
    for file in [f for files in GUEST_FILES.values() for f in files]:
        copy_in(root, file)
        if file.endswith(".so"):
            copy_libraries(root, file)
    add_python(root)
    add_kernel_modules(root, kernel)


def add_busybox(root):
    busybox = shutil.which("busybox")
    shutil.copy(busybox, root / "bin" / "busybox")
    for applet in output_of([busybox, "--list"]).split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")


def add_python(root):
    """Adds our programs in Python, and of Python exactly the files that they load."""
    for file in PYTHON_FILES:
        shutil.copy(file, root / file.name)
    interpreter = Path(PYTHON).resolve()
    copy_in(root, str(interpreter))
    copy_libraries(root, interpreter)
    (root / "bin" / "python3").symlink_to(interpreter)
    # Loaded on the host, they show what they load; what is built into the interpreter has no file.
    modules = ", ".join([*(file.stem for file in PYTHON_FILES), *PYTHON_LATE])
    own = [str(file.parent) for file in PYTHON_FILES]
    lister = (
        f"import sys, {modules}; "
        "files = {getattr(m, '__file__', None) for m in sys.modules.values()}; "
        "print(*filter(None, files), sep='\\n')"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": ":".join([PYTHON_PATH, *own]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for file in output_of([PYTHON, "-S", "-c", lister], env=environment).splitlines():
        if str(Path(file).parent) not in own:
            copy_in(root, file)
            if file.endswith(".so"):
                copy_libraries(root, file)
    options = ["-q", "--invalidation-mode", "unchecked-hash", "-s", root]
    output_of([PYTHON, "-m", "compileall", *options, root / "usr", root])


def add_kernel_modules(root, kernel):
    """Adds the modules and those that they depend on, and their order."""
    for name, modules in [("order", MODULES), *((late, [late]) for late in LATE_MODULES)]:
        files = {
            path.name.removesuffix(".xz"): path
            for module in modules
            for path in module_files(kernel, module)
        }
        for file, path in files.items():
            data = path.read_bytes()
            data = lzma.decompress(data) if path.suffix == ".xz" else data
            (root / "modules" / file).write_bytes(data)
        (root / "modules" / name).write_text("\n".join(files) + "\n")


def module_files(kernel, module):
    """A module's file after those that it depends on; none of a module that is built in."""
    options = ["-d", kernel.tree, "-S", kernel.version]
    listed = output_of(["modprobe", *options, "--show-depends", module])
    return [Path(line.split()[1]) for line in listed.splitlines() if line.startswith("insmod ")]


def copy_libraries(root, program):
    for path in re.findall(r"(/\S+) \(0x", output_of(["ldd", program])):
        if not (root / path.lstrip("/")).exists():
            copy_in(root, path)


def copy_in(root, path):
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, target)
