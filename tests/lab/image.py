"""What must exist before a guest can boot: Debian packages, a kernel, an initramfs.

Everything that is downloaded or built is kept in one cache directory, so only the first run is slow.
"""

import fcntl
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent

# Programs of the host: they build and boot the guest, make its network, and read captures.
HOST_PACKAGES = ["qemu-system-x86", "busybox-static", "cpio", "kmod", "iproute2", "tshark"]

# Programs that are copied into the guest, by the package that brings them.
# Where busybox has one of the same name, its shell takes its own unless the path is written out (/bin/ip).
GUEST_PROGRAMS = {
    "iproute2": ["rdma"],
    "ibverbs-utils": [
        "ibv_devinfo",
        "ibv_rc_pingpong",
        "ibv_uc_pingpong",
        "ibv_ud_pingpong",
        "ibv_srq_pingpong",
    ],
    "rdmacm-utils": [
        "rping",
        "ucmatose",
        "udaddy",
        "mckey",
        "rdma_client",
        "rdma_server",
        "rdma_xclient",
        "rdma_xserver",
    ],
    "perftest": [
        f"ib_{verb}_{what}"
        for verb in ["write", "read", "send", "atomic"]
        for what in ["bw", "lat"]
    ],
}

# Further packages and the files the guest needs of them, which `ldd` does not show because they are opened at run time.
# Of the verbs drivers only rxe's: libibverbs warns about every other one that finds no device.
GUEST_FILES = {
    "ibverbs-providers": [
        "/etc/libibverbs.d/rxe.driver",
        "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so",
    ],
    "libgcc-s1": ["/lib/x86_64-linux-gnu/libgcc_s.so.1"],  # pthread_exit loads it
}

# Kernel name -> pattern of its Debian package; the newest match is taken.
KERNELS = {
    "6.1": r"^linux-image-6\.1\.0-[0-9]+-amd64$",
    "6.12": r"^linux-image-6\.12\.[0-9]+\+deb12-amd64$",
}

# Our shell scripts, and where they are in the guest.
GUEST_SCRIPTS = {"guest-init.sh": "init", "guest-rping.sh": "bin/guest-rping"}

# Our programs in Python, which are in the guest's root directory.
AGENTS = ["agent.py", "steps.py"]

# Their interpreter, its package, and where Debian's packages put modules.
PYTHON = "/usr/bin/python3"
PYTHON_PACKAGES = ["python3-minimal", "python3-pyverbs"]
PYTHON_PATH = "/usr/lib/python3/dist-packages"

# Loaded by the guest in this order. rdma_rxe asks the crypto API for "crc32" and does not depend on it by name.
MODULES = [
    "virtio_pci",
    "virtio_console",
    "virtio_net",
    "crc32_generic",
    "rdma_rxe",
    "ib_uverbs",
    "rdma_ucm",
]


class LabError(Exception):
    """The lab itself cannot do its work; this says nothing about the program under test."""


def cache_dir():
    path = Path(os.environ.get("ROCE_INTEROP_DIR", REPO / "target" / "interop"))
    path.mkdir(parents=True, exist_ok=True)
    return path


def prepare(kernel_name, say):
    """Installs, downloads and builds what is missing. Returns (kernel image, initramfs)."""
    with _locked(cache_dir() / "lock"):
        install_packages(say)
        tree = kernel_tree(kernel_name, say)
        return kernel_image(tree), initramfs(tree, say)


def install_packages(say):
    install(sorted({*HOST_PACKAGES, *GUEST_PROGRAMS, *GUEST_FILES, *PYTHON_PACKAGES}), say)


def install(wanted, say):
    """Installs those packages that are not there."""
    missing = [p for p in wanted if p not in package_versions(wanted)]
    if not missing:
        return
    say(f"installing {' '.join(missing)}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    output_of(["apt-get", "update"], env=env)
    output_of(["apt-get", "install", "-y", "--no-install-recommends", *missing], env=env)


def package_versions(packages):
    """Installed packages -> version."""
    # dpkg-query exits with 1 when one of the packages is unknown, yet prints the others.
    shown = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\n", *packages],
        capture_output=True,
        text=True,
    )
    rows = [line.split() for line in shown.stdout.splitlines()]
    return {row[1]: row[2] for row in rows if row and row[0] == "installed"}


def kernel_tree(name, say):
    """The unpacked package of a kernel. One that is in the cache stays; remove it to get a newer one."""
    tree = cache_dir() / f"kernel-{name}"
    if tree.exists():
        return tree
    output_of(["apt-get", "update"])  # with old lists the package may be one that is gone
    package = newest_package(KERNELS[name])
    say(f"downloading {package}")
    with _scratch() as scratch:
        output_of(["apt-get", "download", package], cwd=scratch)
        [deb] = scratch.glob("*.deb")
        unpacked = scratch / "tree"
        output_of(["dpkg", "-x", deb, unpacked])
        output_of(["depmod", "-b", unpacked, kernel_version(unpacked)])
        unpacked.rename(tree)
    return tree


def newest_package(pattern):
    found = [
        line.split()[0]
        for line in output_of(["apt-cache", "search", "--names-only", pattern]).splitlines()
    ]
    if not found:
        raise LabError(f"no Debian package matches {pattern}")
    return max(found, key=lambda name: [int(n) for n in re.findall(r"\d+", name)])


def kernel_version(tree):
    [modules] = (tree / "lib" / "modules").iterdir()
    return modules.name


def kernel_image(tree):
    return tree / "boot" / f"vmlinuz-{kernel_version(tree)}"


def initramfs(tree, say):
    """The guest's file system, named by a hash of everything it is made from."""
    version = kernel_version(tree)
    packages = package_versions([*HOST_PACKAGES, *GUEST_PROGRAMS, *GUEST_FILES, *PYTHON_PACKAGES])
    recipe = [
        version,
        packages,
        GUEST_PROGRAMS,
        GUEST_FILES,
        MODULES,
        *(
            path.read_text()
            for path in [*(HERE / name for name in [*GUEST_SCRIPTS, *AGENTS]), Path(__file__)]
        ),
    ]
    digest = hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]
    image = cache_dir() / f"initramfs-{version}-{digest}.cpio"
    if image.exists():
        return image
    say(f"building {image.name}")
    with _scratch() as scratch:
        root = scratch / "root"
        fill_root(root, tree, version)
        archive = scratch / "archive"
        # Not compressed: unpacking would be slower in an emulated guest than reading it.
        output_of(["sh", "-c", f"find . | cpio --quiet -o -H newc >{archive}"], cwd=root)
        for old in cache_dir().glob(f"initramfs-{version}-*.cpio"):
            old.unlink()
        archive.rename(image)
    return image


def with_files(initramfs, directory, target):
    """The same file system and what is in a directory besides, as one image: the kernel unpacks one archive after the other."""
    shutil.copy(initramfs, target)
    output_of(["sh", "-c", f"find . | cpio --quiet -o -H newc >>{target}"], cwd=directory)
    return target


def fill_root(root, tree, version):
    for directory in ["bin", "dev", "etc", "modules", "proc", "sys", "tmp"]:
        (root / directory).mkdir(parents=True)
    for script, place in GUEST_SCRIPTS.items():
        shutil.copy(HERE / script, root / place)
        (root / place).chmod(0o755)

    busybox = shutil.which("busybox")
    shutil.copy(busybox, root / "bin" / "busybox")
    for applet in output_of([busybox, "--list"]).split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")

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
    add_agents(root)

    order = []
    for module in MODULES:
        for path in module_files(tree, version, module):
            name = path.name.removesuffix(".xz")
            if name not in order:
                order.append(name)
                data = path.read_bytes()
                (root / "modules" / name).write_bytes(
                    lzma.decompress(data) if path.suffix == ".xz" else data
                )
    (root / "modules" / "order").write_text("\n".join(order) + "\n")


def add_agents(root):
    """Our programs in Python, and of Python exactly what they load."""
    for agent in AGENTS:
        shutil.copy(HERE / agent, root / agent)
    interpreter = Path(PYTHON).resolve()
    copy_in(root, str(interpreter))
    copy_libraries(root, interpreter)
    (root / "bin" / "python3").symlink_to(interpreter)
    # Loading them on the host says what there is to load; what is built into the interpreter has no file.
    modules = ", ".join(agent.removesuffix(".py") for agent in AGENTS)
    lister = f"import sys, {modules}; print(*{{f for m in sys.modules.values() if (f := getattr(m, '__file__', None))}}, sep='\\n')"
    environment = {
        **os.environ,
        "PYTHONPATH": f"{PYTHON_PATH}:{HERE}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for file in output_of([PYTHON, "-S", "-c", lister], env=environment).splitlines():
        if Path(file).parent != HERE:
            copy_in(root, file)
            if file.endswith(".so"):
                copy_libraries(root, file)
    output_of(
        [
            PYTHON,
            "-m",
            "compileall",
            "-q",
            "--invalidation-mode",
            "unchecked-hash",
            "-s",
            root,
            root / "usr",
            root,
        ]
    )


def module_files(tree, version, module):
    """A module's file after those of the modules it depends on; nothing when it is built into the kernel."""
    listed = output_of(["modprobe", "-d", tree, "-S", version, "--show-depends", module])
    return [Path(line.split()[1]) for line in listed.splitlines() if line.startswith("insmod ")]


def copy_libraries(root, program):
    for path in re.findall(r"(/\S+) \(0x", output_of(["ldd", program])):
        if not (root / path.lstrip("/")).exists():
            copy_in(root, path)


def copy_in(root, path):
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, target)


def output_of(argv, **options):
    """Runs a program to its end and returns its output; its failure is the lab's failure."""
    argv = [str(a) for a in argv]
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    if done.returncode != 0:
        raise LabError(
            f"{' '.join(argv)}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.stdout


@contextmanager
def _locked(path):
    """Two runs at once must not build the same thing."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _scratch():
    """A directory on the cache's file system: what is finished leaves it by a rename, so nothing half-made is cached."""
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="scratch-") as path:
        yield Path(path)
