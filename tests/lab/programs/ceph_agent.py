"""One side of Ceph: a cluster of a monitor and an object store in memory, which stays until it is
killed, or a client of it.

ceph_agent.py MESSENGER DEVICE GID_INDEX OWN_ADDRESS [SERVER]

MESSENGER is "rdma" or "posix". What all programs of both sides send goes over it, and the client
looks at the object store's counters, of what RDMA has carried.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

POOL = "pool"
OBJECT_BYTES = 64 << 10
OBJECTS = 3000
FILE_BYTES = 3_000_000
READY_SECONDS = 12
# There is one store, so that no second one has copies; what there is in it is lost at its end. By
# default each program has 4 GiB of receive buffers.
CONFIGURATION = """
[global]
fsid = {fsid}
mon_initial_members = a
mon_host = [v2:{server}:3300,v1:{server}:6789]
public_addr = {own}
cluster_addr = {own}
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
auth_allow_insecure_global_id_reclaim = false
ms_type = async+{messenger}
ms_async_rdma_device_name = {device}
ms_async_rdma_gid_idx = {gid}
ms_async_rdma_receive_buffers = 4096
ms_async_rdma_receive_queue_len = 1024
osd_objectstore = memstore
memstore_device_bytes = 1073741824
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_data_avail_crit = 1
run_dir = {directory}
log_file = {directory}/$name.log
crash_dir = {directory}
mon_data = {directory}/mon
osd_data = {directory}/osd
"""


def main(messenger, device, gid, own, server=None):
    directory = Path(tempfile.mkdtemp())
    words = {"messenger": messenger, "device": device, "gid": gid, "own": own}
    words |= {"server": server or own, "directory": directory, "fsid": uuid.uuid4()}
    (directory / "ceph.conf").write_text(CONFIGURATION.format_map(words))
    os.environ["CEPH_CONF"] = str(directory / "ceph.conf")
    os.chdir(directory)
    if server:
        use(directory, messenger)
    else:
        serve(directory)


def serve(directory):
    for name in ["mon", "osd"]:
        (directory / name).mkdir()
    run("ceph-mon", "--mkfs", "--id", "a")
    monitor = start(directory, "ceph-mon", "--id", "a")
    identity = str(uuid.uuid4())
    run("ceph", "osd", "new", identity, "0")
    run("ceph-osd", "--mkfs", "--id", "0", "--osd-uuid", identity)
    store = start(directory, "ceph-osd", "--id", "0", "--osd-uuid", identity)
    run("ceph", "osd", "pool", "create", POOL, "8")
    deadline = time.monotonic() + READY_SECONDS
    while json.loads(run("ceph", "osd", "stat", "--format", "json"))["num_up_osds"] < 1:
        if store.poll() is not None or time.monotonic() > deadline:
            log = (directory / "ceph-osd.out").read_text()
            sys.exit(f"the object store does not start:\n{log}")
        time.sleep(0.1)
    print("the cluster is ready", flush=True)
    sys.exit(monitor.wait())


def use(directory, messenger):
    rados = ("rados", "--pool", POOL)
    count = ("--max-objects", OBJECTS, "--no-cleanup")
    print(run(*rados, "bench", 60, "write", "-b", OBJECT_BYTES, "-t", 8, *count), flush=True)
    print(run(*rados, "bench", 60, "seq", "-t", 8), flush=True)
    data = os.urandom(FILE_BYTES)
    (directory / "in").write_bytes(data)
    run(*rados, "put", "object", directory / "in")
    run(*rados, "get", "object", directory / "out")
    print("the object is", "right" if (directory / "out").read_bytes() == data else "wrong")
    counters = json.loads(run("ceph", "tell", "osd.0", "perf", "dump"))
    workers = [value for name, value in counters.items() if "RDMAWorker" in name]
    carried = sum(worker["rx_bytes"] for worker in workers)
    wanted = OBJECTS * OBJECT_BYTES + FILE_BYTES if messenger == "rdma" else 0
    print("RDMA has carried", "all" if carried >= wanted else f"{carried} bytes", flush=True)


def start(directory, program, *options):
    with open(directory / f"{program}.out", "w") as output:
        return subprocess.Popen([program, "-f", *options], stdout=output, stderr=output)


def run(*argv):
    """What it prints, on standard output."""
    argv = list(map(str, argv))
    result = subprocess.run(argv, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(argv)} ended with {result.returncode}:\n{result.stderr}")
    return result.stdout


main(*sys.argv[1:])
