"""Requirements of a run: Debian packages and downloads. Only `--install` gets what is missing."""

import os
import re
import shutil
import subprocess

from lab.host import LabError, cache_dir, cache_lock, output_of, scratch_dir
from lab.report import say

# Kernels: name -> pattern of the Debian package, of which the newest match is taken.
KERNELS = {
    "6.1": r"^linux-image-6\.1\.0-[0-9]+-amd64$",
    "6.12": r"^linux-image-6\.12\.[0-9]+\+deb12-amd64$",
}

# Debian's Python, which wheels are for.
WHEEL_PYTHON = "python3.11"


class MissingError(LabError):
    """Requirements that are missing, with the way to get them."""


def require(requirements, install, suite):
    """Checks the requirements of a suite. With `install`, those that are missing are installed."""
    if shutil.which("dpkg-query") is None:
        raise MissingError("this needs Debian 12: there is no dpkg-query")
    with cache_lock():
        if install:
            for requirement in requirements:
                if missing := requirement.missing():
                    say(f"installing {' '.join(missing)}")
                    install_or_note(requirement)
        missing = [name for requirement in requirements for name in requirement.missing()]
    if missing:
        hint = "" if install else f"; `tests/lab/run {suite} --install` installs them"
        raise MissingError(f"missing: {' '.join(missing)}{hint}")


def install_or_note(requirement):
    """Installs it. Sources that cannot be had are noted: what needs them fails, no more."""
    try:
        requirement.install()
    except LabError as error:
        if not isinstance(requirement, BuiltSource):
            raise
        requirement.lacking = f"{' '.join(requirement.missing())} cannot be had"
        say(f"{requirement.lacking}: {error}")


class Packages:
    """Debian packages that must be installed."""

    def __init__(self, names):
        self.names = sorted(set(names))

    def missing(self):
        versions = package_versions(self.names)
        return [name for name in self.names if name not in versions]

    def install(self):
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        output_of(["apt-get", "update"], env=env)
        options = ["-y", "--no-install-recommends"]
        output_of(["apt-get", "install", *options, *self.missing()], env=env)


class Kernel:
    """Unpacked package of a kernel. One in the cache stays; removing it gets a newer one."""

    def __init__(self, name):
        self.name = name
        self.tree = cache_dir() / f"kernel-{name}"

    def missing(self):
        return [] if self.tree.exists() else [self.tree.name]

    def install(self):
        # With old lists the newest package may be one that the server no longer has.
        output_of(["apt-get", "update"])
        with scratch_dir() as scratch:
            unpacked = download(newest_package(KERNELS[self.name]), scratch)
            output_of(["depmod", "-b", unpacked, modules_version(unpacked)])
            unpacked.rename(self.tree)

    @property
    def version(self):
        return modules_version(self.tree)

    @property
    def image(self):
        return self.tree / "boot" / f"vmlinuz-{self.version}"


class PyverbsTests:
    """rdma-core's tests of the verbs. Where documentation is left out of installed packages, they
    are taken from the downloaded package.
    """

    SHIPPED = "usr/share/doc/rdma-core/tests"

    def __init__(self):
        self.unpacked = cache_dir() / "rdma-core"

    @property
    def directory(self):
        installed = f"/{self.SHIPPED}"
        return installed if os.path.exists(installed) else f"{self.unpacked}/{self.SHIPPED}"

    def missing(self):
        return [] if os.path.exists(self.directory) else ["rdma-core/tests"]

    def install(self):
        with scratch_dir() as scratch:
            download("rdma-core", scratch).rename(self.unpacked)


class PinnedSource:
    """What is not a package of this Debian, in one version, in a directory of the cache."""

    origin = ""
    packages = ()  # of Debian, which it takes to get it

    def __init__(self, name, version, sha256):
        self.name, self.version, self.sha256 = name, version, sha256

    @property
    def word(self):
        """The word of command lines that stands for its place."""
        return self.name.replace("-", "_")

    @property
    def directory(self):
        return cache_dir() / f"{self.name}-{self.version}"

    def missing(self):
        return [] if self.directory.exists() else [f"{self.name}=={self.version} of {self.origin}"]


class PypiPackage(PinnedSource):
    """A package of PyPI, of which pip knows the file by its digest."""

    origin = "PyPI"
    packages = ("python3-pip", "python3-numpy")

    def install(self):
        with scratch_dir() as scratch:
            wanted = scratch / "wanted"
            wanted.write_text(f"{self.name}=={self.version} --hash=sha256:{self.sha256}\n")
            self.unpack(["--requirement", wanted], scratch).rename(self.directory)


class SourcePackage(PypiPackage):
    """The sources of a package, unpacked in the cache."""

    def unpack(self, wanted, scratch):
        pip("python3", "download", "--no-binary=:all:", "--dest", scratch, *wanted)
        unpacked = scratch / self.directory.name
        shutil.unpack_archive(f"{unpacked}.tar.gz", scratch)
        return unpacked


class Wheel(PypiPackage):
    """A wheel, in an environment of its own in the cache; its Python is bin/python."""

    def unpack(self, wanted, scratch):
        environment = scratch / "environment"
        place = environment / "lib" / WHEEL_PYTHON / "site-packages"
        pip(WHEEL_PYTHON, "install", "--only-binary=:all:", "--target", place, *wanted)
        (environment / "bin").mkdir()
        (environment / "bin" / "python").symlink_to(f"/usr/bin/{WHEEL_PYTHON}")
        # of Debian's packages it sees those, too
        settings = "home = /usr/bin\ninclude-system-site-packages = true\n"
        (environment / "pyvenv.cfg").write_text(settings)
        return environment


class BuiltSource(PinnedSource):
    """Sources that are built: `build(tree, target)` is called in their directory, and fills another
    one, which is kept.
    """

    lacking = ""  # why it is not there though it was to be installed

    def __init__(self, name, version, sha256, packages, build):
        super().__init__(name, version, sha256)
        self.packages, self.build = packages, build

    def missing(self):
        return [] if self.lacking else super().missing()

    def install(self):
        with scratch_dir() as scratch:
            tree, built = scratch / "tree", scratch / "built"
            self.bring(tree, scratch / "archive")
            built.mkdir()
            self.build(tree, built)
            built.rename(self.directory)


class Crate(BuiltSource):
    """The sources of a crate, built with the versions of its Cargo.lock."""

    origin = "crates.io"

    def bring(self, tree, archive):
        file = f"{self.name}-{self.version}.crate"
        fetch(f"https://static.crates.io/crates/{self.name}/{file}", archive, self.sha256)
        unpack(archive, tree)
        # The cache is inside of this repository's workspace, of which a crate is no member.
        with open(tree / "Cargo.toml", "a") as manifest:
            manifest.write("\n[workspace]\n")


class DebianSource(BuiltSource):
    """The original sources of a package of a newer Debian. `archive` is the name of their file up
    to the version, if it is not that of what is built, and its ending.
    """

    origin = "Debian's sources"

    def __init__(self, name, version, sha256, packages, build, archive=None):
        super().__init__(name, version, sha256, packages, build)
        self.archive = archive or (name, "tar.xz")

    def bring(self, tree, archive):
        package, ending = self.archive
        name = f"{package}_{self.version}.orig.{ending}"
        # Those of libraries are by four letters: there are so many.
        letters = package[:4] if package.startswith("lib") else package[0]
        fetch(f"{repository()}pool/main/{letters}/{package}/{name}", archive, self.sha256)
        unpack(archive, tree)


class GitSource(BuiltSource):
    """A commit of a repository, for what no archive of packages has: its name is its digest."""

    def __init__(self, name, version, address, commit, packages, build):
        super().__init__(name, version, commit, ("git", "ca-certificates", *packages), build)
        self.origin = address

    def bring(self, tree, _archive):
        output_of(["git", "init", "--quiet", tree])
        output_of(["git", "-C", tree, "fetch", "--quiet", "--depth=1", self.origin, self.sha256])
        output_of(["git", "-C", tree, "checkout", "--quiet", "FETCH_HEAD"])


def fetch(address, path, sha256):
    """Downloads a file, which has this digest."""
    output_of(["/usr/lib/apt/apt-helper", "download-file", address, path, f"SHA256:{sha256}"])


def unpack(archive, tree):
    """Unpacks an archive, without the directory that all of it is in."""
    tree.mkdir()
    output_of(["tar", "-xf", archive, "-C", tree, "--strip-components=1"])


def repository():
    """Where this system has its packages from, with a slash at the end."""
    # Without lists of packages nothing is known of it.
    output_of(["apt-get", "update"])
    filters = ["Identifier: Packages", "Component: main", "Origin: Debian"]
    return output_of(["apt-get", "indextargets", "--format", "$(REPO_URI)", *filters]).split()[0]


def pip(python, command, *options):
    how = ["--quiet", "--no-deps", "--require-hashes"]
    output_of([f"/usr/bin/{python}", "-m", "pip", command, *how, *options])


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


def newest_package(pattern):
    listed = output_of(["apt-cache", "search", "--names-only", pattern])
    found = [line.split()[0] for line in listed.splitlines()]
    if not found:
        raise LabError(f"no Debian package matches {pattern}")
    return max(found, key=lambda name: [int(n) for n in re.findall(r"\d+", name)])


def download(package, scratch):
    """Downloads and unpacks a package in a scratch directory; returns the unpacked tree."""
    output_of(["apt-get", "download", package], cwd=scratch)
    [deb] = scratch.glob("*.deb")
    output_of(["dpkg", "-x", deb, scratch / "tree"])
    return scratch / "tree"


def modules_version(tree):
    """Version of the kernel whose package is unpacked in `tree`."""
    [modules] = (tree / "lib" / "modules").iterdir()
    return modules.name
