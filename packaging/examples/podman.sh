#!/bin/sh
# ib_write_bw between two containers of rootless Podman: no capability, no device, the default seccomp profile. Run it in a
# checkout.
set -eu
podman build --file packaging/Dockerfile --tag roce .
podman build --file packaging/examples/tools.Dockerfile --tag roce-tools packaging/examples
podman network create roce
podman run --detach --rm --cap-drop all --network roce --name server roce-tools roce run -- ib_write_bw -F -d roce_eth0 -x 1 --report_gbits
podman run --rm --cap-drop all --network roce --name client roce-tools sh -c 'until roce run -- ib_write_bw -F -d roce_eth0 -x 1 --report_gbits server; do sleep 1; done'
podman network rm roce
