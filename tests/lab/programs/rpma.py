"""librpma's examples, each a server and a client, in memory that is not persistent. They need two
hosts: librdmacm has no device for an id that is bound to loopback.
"""

import shutil
from functools import partial

from lab.dropin.case import Case, Program
from lab.host import output_of
from lab.programs.trial import trials
from lab.requirements import DebianSource

PORT = 7204
PACKAGES = [
    *("cmake", "make", "gcc", "libc6-dev", "perl", "pkg-config"),
    *("libibverbs-dev", "librdmacm-dev", "libprotobuf-c-dev"),
]


def build_rpma(tree, target):
    options = ["-DBUILD_TESTS=OFF", "-DBUILD_DOC=OFF", "-DCMAKE_C_FLAGS=-w"]
    built = tree / "built"
    output_of(["cmake", "-S", tree, "-B", built, *options, "-DCMAKE_BUILD_RPATH=$ORIGIN/.."])
    output_of(["make", "-s", "-j2", "-C", built, "rpma", "examples"])
    shutil.copy(built / "src" / "librpma.so.0", target)
    for server in (built / "examples").glob("*/server"):
        place = target / server.parent.name
        place.mkdir()
        for program in ["server", "client"]:
            shutil.copy(server.parent / program, place)


RPMA = DebianSource(
    "rpma",
    "1.2.0",
    "f2f2f6c51c002277e6606943206842afa61e1d40074c5bb7609b2de7322809a5",
    PACKAGES,
    build_rpma,
    archive=("rpma", "tar.gz"),
)
HELLO = "Hello world!"
TRANSLATED = r"Translation: .*Hola Mundo!"
# Of a client that counts from 7, and a server that adds one.
CLIENT_COUNTS = [rf"(CLIENT: )?Value received: {value}" for value in (8, 9, 10)]
SERVER_COUNTS = [rf"(SERVER: )?Value received: {value}" for value in (7, 8, 9)]
# Examples: further arguments of the client, and what it and the server print.
EXAMPLES = {
    "01-connection": ((), ["Received a message: Hello client!"], ["Received a message: .*server!"]),
    "02-read-to-volatile": ((), ["Read a message: Hello client!"], []),
    "03-read-to-persistent": ((), [TRANSLATED], [f"New value: {HELLO}"]),
    "04-write-to-persistent": ((), [TRANSLATED], [f"New value: {HELLO}"]),
    "05-flush-to-persistent": ((), [TRANSLATED], [f"New value: {HELLO}"]),
    "07-atomic-write": (("first", "second", "third"), ["used value: .*"], ["first", "third"]),
    "08-messages-ping-pong": ((7, 4), CLIENT_COUNTS, SERVER_COUNTS),
    "08srq-simple-messages-ping-pong-with-srq": ((7, 3), CLIENT_COUNTS, SERVER_COUNTS),
    "09-flush-to-persistent-GPSPM": ((), [TRANSLATED], [f"New value: {HELLO}"]),
    "09scch-flush-to-persistent-GPSPM": ((), [TRANSLATED], [f"New value: {HELLO}"]),
    "10-send-with-imm": ((1234, "word"), [], ["Received value 'word' with immediate data '1234'"]),
    "11-write-with-imm": ((1234,), [], ["The value '1234' was .* immediate data '1234'"]),
    "12-receive-completion-queue": ((7, 4), CLIENT_COUNTS, SERVER_COUNTS),
    # for which a SEND must complete before the answer to it arrives
    "12scch-receive-completion-queue": ((7, 4), CLIENT_COUNTS, SERVER_COUNTS),
}
# Seeds of clients, and what names they choose by the random numbers of the C library.
NAMES = {8: "Chet", 9: "Piotr", 12: "Lukasz", 13: "Pawel"}


def rpma_trials():
    for example in EXAMPLES:
        yield from example_trials(example, partial(pair, example=example))
    for example in ["06-multiple-connections", "06scch-multiple-connections"]:
        yield from example_trials(example, partial(several_in_turn, example=example))
    yield from example_trials("13-messages-ping-pong-with-srq", several_at_once)


def example_trials(example, make):
    name = f"rpma/{example.split('-')[0]}"
    yield from trials(name, RPMA.name, make, None, ("hosts",), True, RPMA)


def pair(name, place, tcp, example):
    arguments, client_lines, server_lines = EXAMPLES[example]
    client = Program((*program(example, "client"), *arguments), tuple(client_lines))
    return case(name, place, client, Program(program(example, "server"), tuple(server_lines)))


def several_in_turn(name, place, tcp, example):
    """The server reads the name of each client, and waits for more of them."""
    command = " ".join(map(str, program(example, "client")))
    script = f"for seed in {' '.join(map(str, NAMES))}; do {command} $seed || exit; done"
    client = Program(("sh", "-c", script), tuple(f"My names is: {one}" for one in NAMES.values()))
    server = ("stdbuf", "-oL", *program(example, "server"))
    return case(
        name,
        place,
        client,
        Program(server, tuple(f"- {one}" for one in NAMES.values()), endless=True),
    )


def several_at_once(name, place, tcp):
    """The server waits three seconds for clients, and then answers all of them."""
    example = "13-messages-ping-pong-with-srq"
    # Processes share their host's address, but not with sockets only.
    seeds = [5] if name.endswith("/sockets") else [1, 5, 10]
    command = " ".join(map(str, program(example, "client")))
    script = (
        f'for seed in {" ".join(map(str, seeds))}; do {command} $seed 3 & pids="$pids $!"; done; '
        "for pid in $pids; do wait $pid || exit; done"
    )
    received = [rf"\[client #\d+\] value received: {seed + 3}" for seed in seeds]
    sent = [rf"\[server\] value sent: {seed + 3} .*" for seed in seeds]
    server = (*program(example, "server"), 3)
    client = Program(("sh", "-c", script), tuple(received))
    return case(name, place, client, Program(server, tuple(sent)))


def program(example, role):
    return (f"{{rpma}}/{example}/{role}", "{server}", PORT)


def case(name, place, client, server):
    return Case(name, place, client, server, "cm", 60)
