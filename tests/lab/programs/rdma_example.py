"""The rdma-example of Animesh Trivedi: its client writes to memory of the server and reads it
again, after the two have told each other address and key. The keys that they tell are L_Keys.
"""

import shutil

from lab.dropin.case import Case, Program
from lab.host import output_of
from lab.programs.trial import trials
from lab.requirements import GitSource

PACKAGES = ["cmake", "make", "gcc", "g++", "libc6-dev", "libibverbs-dev", "librdmacm-dev"]
TEXT = "a text of some words"


def build_example(tree, target):
    built = tree / "built"
    output_of(["cmake", "-S", tree, "-B", built, "-DCMAKE_C_FLAGS=-w"])
    output_of(["make", "-s", "-C", built])
    for program in (tree / "bin").iterdir():
        shutil.copy(program, target)


RDMA_EXAMPLE = GitSource(
    "rdma-example",
    "615b85d",
    "https://github.com/animeshtrivedi/rdma-example",
    "615b85d27a69e65c51ab74809b638be0d8505a35",
    PACKAGES,
    build_example,
)


def rdma_example_trials():
    places = ("loopback", "hosts")
    source = RDMA_EXAMPLE
    yield from trials("rdma-example/text", source.name, case, None, places, True, source)


def case(name, place, _tcp):
    client = ("{rdma_example}/rdma_client", "-a", "{server}", "-s", TEXT)
    server = ("{rdma_example}/rdma_server", "-a", "{own}")
    return Case(
        name,
        place,
        Program(client, ("SUCCESS, source and destination buffers match ?",)),
        Program(server, ("The client has requested buffer length of .*",)),
        "cm",
    )
