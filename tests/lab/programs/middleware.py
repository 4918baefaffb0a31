"""UCX, libfabric, and MPI on UCX. Their TCP modes are other transports of the same layers.

Open MPI 4.1 does `MPI_Get_accumulate` with `MPI_REPLACE` as a READ and a WRITE without waiting in
between. Over RC the responder answers in order, but a repeated READ returns what was written since;
over UD UCX has no order for it. So `mpi_check replace` runs where it must be right, MPICH's
everywhere.
"""

from lab.dropin.case import Case, Program
from lab.dropin.middleware import open_mpi
from lab.programs.trial import CONDITIONS, Figure, trials

# Behind the iterations ucx_perftest prints three latencies, two bandwidths and two rates.
UCX_LATENCY = Figure(
    r"^(?:Final:)? +\d+ +(?:[\d.]+ +){2}(?P<value>[\d.]+)", False, "us", recorded=False
)
UCX_BANDWIDTH = Figure(r"^(?:Final:)? +\d+ +(?:[\d.]+ +){4}(?P<value>[\d.]+)", unit="MB/s")
UCX_TESTS = [("tag_lat", 8, 5000, UCX_LATENCY), ("tag_bw", 65536, 4000, UCX_BANDWIDTH)]
# Both sides of fi_pingpong end when their last message is acknowledged and the peer's has come. If
# the last acknowledgement is lost, its sender has closed the connection before the message is
# repeated: the other side's request is flushed, as with an adapter in hardware, and it fails.
PINGPONG_CONDITIONS = {**CONDITIONS, "drop": {"run": ("--fault", "pass ack, drop 0.2%")}}
FABRIC_FIGURE = Figure(r"^1m +(?:\S+ +){4}(?P<value>[\d.]+)", unit="MB/s")
MPI_FIGURE = Figure(r"^bandwidth (?P<value>[\d.]+) (?P<unit>MB/s)")


def middleware_trials():
    yield from ucx_trials()
    yield from fabric_trials()
    yield from mpi_trials()
    yield from mpi_host_trials()


def ucx_trials():
    for transport in ["rc_v", "ud_v"]:
        for test, size, count, figure in UCX_TESTS:

            def make(name, place, tcp, transport=transport, options=(test, size, count)):
                test, size, count = options
                # By itself UCX sends 64 KiB over RC in pieces of 8256 bytes, a call for each.
                rendezvous = ("UCX_RNDV_THRESH=32k",) if transport == "rc_v" and not tcp else ()
                environment = (*ucx_environment(transport, place, tcp), *rendezvous)
                server = (*environment, "ucx_perftest", "-f")
                client = (*server, "{server}", "-t", test, "-s", size, "-n", count, "-w", 100)
                return Case(
                    name,
                    place,
                    Program(client, (r"(.*Final:)?\s*\d+(\s+[\d.]+)+",), ("ERROR", "WARN")),
                    Program(server, forbidden=("ERROR", "WARN")),
                    "tcp:13337",
                    60,
                    sysfs=not tcp,
                )

            name = f"ucx/{transport}/{test}"
            yield from trials(name, "ucx-utils", make, figure, places=("hosts",))


def ucx_environment(transport, place, tcp):
    interface = "lo" if place == "loopback" else "eth0"
    if tcp:
        return ("env", "UCX_TLS=tcp", f"UCX_NET_DEVICES={interface}", "UCX_LOG_LEVEL=warn")
    devices = (f"UCX_TLS={transport}", "UCX_NET_DEVICES={device}:1")
    # Over UD it ends a program whose peer has acknowledged nothing for so long; by itself 30 s,
    # which losses and its own timers can take on a busy machine.
    return ("env", *devices, "UCX_UD_TIMEOUT=300s", "UCX_LOG_LEVEL=warn")


def fabric_trials():
    for endpoint, over_tcp in [("msg", "tcp"), ("rdm", "tcp;ofi_rxm")]:

        def make(name, place, tcp, endpoint=endpoint, over_tcp=over_tcp):
            provider = over_tcp if tcp else "verbs"
            server = ("fi_pingpong", "-p", provider, "-e", endpoint, "-I", 200, "-S", 1 << 20)
            row = (r"(1m|1048576)\s+\d+\s.*",)
            client = Program((*server, "{server}"), row)
            return Case(name, place, client, Program(server, row), "tcp:47592", 60)

        name = f"libfabric/fi_pingpong-{endpoint}"
        places = ("hosts",)
        yield from trials(
            name, "libfabric-bin", make, FABRIC_FIGURE, places, conditions=PINGPONG_CONDITIONS
        )


def mpi_trials():
    for package, launch, program in [
        ("openmpi-bin", open_mpi, "{mpi_openmpi}"),
        ("mpich", mpich, "{mpi_mpich}"),
    ]:
        for transport in ["rc_v", "ud_v"]:
            for ranks in [2, 4]:

                def make(name, place, tcp, how=(launch, program, transport, ranks)):
                    launch, program, transport, ranks = how
                    # Devices of roce_lo have an address each; those of an interface share one.
                    environment = ucx_environment(transport, place, tcp)[1:]
                    # Open MPI reads and then writes without a fence in between: what it replaces,
                    # RC has in order unless something is lost, and UCX over UD has not.
                    replaces = launch is mpich or (transport == "rc_v" and "drop" not in name)
                    argv = (*launch(ranks, environment), program, *["replace"] * replaces)
                    done = rf"{ranks} ranks, all right"
                    return Case(name, place, Program(argv, (done,)), seconds=90, sysfs=not tcp)

                name = f"{package.removesuffix('-bin')}/{transport}/{ranks}-ranks"
                # Four ranks on two processors wait for each other most of the time.
                figure = MPI_FIGURE if ranks == 2 else None
                yield from trials(name, package, make, figure, ("loopback",), large=ranks > 2)


def mpi_host_trials():
    """Ranks on two hosts. Those of the other host are started by a shell that listens there, as by
    ssh elsewhere.
    """

    def make(name, place, tcp):
        environment = ucx_environment("rc_v", place, tcp)[1:]
        # Processes share their host's address, but not with sockets only.
        each = 1 if name.endswith("/sockets") else 2
        # Neighbours are on different hosts.
        hosts = ["--host", f"{{own}}:{each},{{server}}:{each}", "--map-by", "node"]
        remote = ["--mca", "plm_rsh_agent", "{remote_shell}"]
        if not tcp:
            # All ranks of a host are in one `roce run`.
            remote += ["--mca", "orte_launch_agent", "{roce} run --sysfs -d eth0 -- orted"]
        replaces = ["replace"] * ("drop" not in name)  # as above
        argv = (*open_mpi(2 * each, environment), *hosts, *remote, "{mpi_openmpi}", *replaces)
        listener = ("socat", "TCP-LISTEN:2222,reuseaddr,fork", "EXEC:sh")
        return Case(
            name,
            place,
            Program(argv, (f"{2 * each} ranks, all right",)),
            Program(listener, endless=True),
            "tcp:2222",
            90,
            sysfs=not tcp,
        )

    yield from trials("openmpi/rc_v/2-hosts", "openmpi-bin", make, MPI_FIGURE, ("hosts",))


def mpich(ranks, environment):
    # Its own shared memory would leave nothing to the network.
    return ["env", *environment, "MPIR_CVAR_NOLOCAL=1", "mpirun.mpich", "-n", ranks]
