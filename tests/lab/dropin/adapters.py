"""`ibv_devinfo -v` of devices that show themselves as given adapters, against recorded listings.

The listings are public ones, which the profiles in provider/src/profile name. A value that cannot
be had here is that which docs/guide/adapters.md tells.
"""

from lab.dropin.case import Case, Program

MLX5 = """
vendor_id: 0x02c9
hw_ver: 0x0
phys_port_cnt: 1
max_mr_size: 0xffffffffffffffff
page_size_cap: 0xfffffffffffff000
max_qp_wr: 32768
max_sge: 30
max_sge_rd: 30
max_cq: 16777216
max_cqe: 4194303
max_mr: 16777216
max_pd: 8388608
max_qp_rd_atom: 16
max_ee_rd_atom: 0
max_qp_init_rd_atom: 16
atomic_cap: ATOMIC_HCA (1)
max_mw: 1048576
max_mcast_grp: 2097152
max_mcast_qp_attach: 240
max_total_mcast_qp_attach: 503316480
max_ah: 2147483647
max_srq: 8388608
max_srq_wr: 32767
max_srq_sge: 31
max_pkeys: 128
local_ca_ack_delay: 16
maximum available device memory: 131072Bytes
state: PORT_ACTIVE (4)
max_mtu: 4096 (5)
link_layer: Ethernet
max_msg_sz: 0x40000000
port_cap_flags: 0x04010000
max_vl_num: invalid value (0)
pkey_tbl_len: 1
gid_tbl_len: 255
phys_state: LINK_UP (5)
"""

LISTINGS = {
    "connectx-5": (
        "mlx5_0",
        MLX5
        + """
fw_ver: 16.31.1014
vendor_part_id: 4119
board_id: MT_0000000080
max_res_rd_atom: 4194304
num_comp_vectors: 8
active_width: 1X (1)
active_speed: 25.0 Gbps (32)
""",
    ),
    "connectx-6dx": (
        "mlx5_1",
        MLX5
        + """
fw_ver: 22.36.1010
vendor_part_id: 4125
board_id: MT_0000000359
max_res_rd_atom: 2097152
num_comp_vectors: 63
active_width: 4X (2)
active_speed: 25.0 Gbps (32)
""",
    ),
    "connectx-7": (
        "mlx5_0",
        MLX5
        + """
fw_ver: 28.42.1000
vendor_part_id: 4129
board_id: MT_0000000838
active_width: 4X (2)
""",
    ),
    "bluefield-2": ("mlx5_1", MLX5 + "vendor_part_id: 41686\n"),
    "e810": (
        "irdma1",
        """
fw_ver: 1.54
vendor_id: 0x8086
vendor_part_id: 5522
hw_ver: 0x2
max_mr_size: 0x200000000000
page_size_cap: 0x40201000
max_qp: 65533
max_qp_wr: 4063
device_cap_flags: 0x00221000
max_sge: 13
max_sge_rd: 13
max_cq: 131069
max_cqe: 1048574
max_mr: 2097150
max_pd: 262141
max_qp_rd_atom: 127
max_res_rd_atom: 0
max_qp_init_rd_atom: 128
atomic_cap: ATOMIC_NONE (0)
max_mw: 1048576
max_mcast_grp: 65536
max_mcast_qp_attach: 8
max_total_mcast_qp_attach: 524288
max_ah: 131072
max_srq: 0
max_pkeys: 1
local_ca_ack_delay: 0
num_comp_vectors: 48
max_msg_sz: 0x40000000
port_cap_flags: 0x04050000
gid_tbl_len: 32
active_width: 4X (2)
active_speed: 25.0 Gbps (32)
""",
    ),
    "erdma": (
        "erdma_0",
        "vendor_id: 0x1ded\nmax_sge: 1\nmax_sge_rd: 1\nmax_qp_wr: 8192\nmax_srq: 0\n",
    ),
    "rxe": (
        "rxe0",
        """
fw_ver: 0.0.0
vendor_id: 0x0000
vendor_part_id: 0
max_mr_size: 0xffffffffffffffff
page_size_cap: 0xfffff000
max_qp: 65536
max_qp_wr: 16384
max_sge: 32
max_sge_rd: 32
max_cq: 16384
max_cqe: 32767
max_mr: 262144
max_pd: 32764
max_qp_rd_atom: 128
max_res_rd_atom: 258048
max_qp_init_rd_atom: 128
max_mcast_grp: 8192
max_mcast_qp_attach: 56
max_total_mcast_qp_attach: 458752
max_ah: 100
max_srq: 960
max_srq_wr: 16384
max_srq_sge: 27
max_pkeys: 64
local_ca_ack_delay: 15
""",
    ),
}


def adapter_cases():
    for name, (device, listing) in LISTINGS.items():
        lines = [rf"hca_id:\s+{device}"]
        for line in filter(None, listing.splitlines()):
            field, value = line.split(": ", 1)
            value = value.replace("(", r"\(").replace(")", r"\)").replace(".", r"\.")
            lines.append(rf"{field}:\s+{value}")
        if device.startswith("mlx5"):
            lines += [r"GID\[\s*0\]:.*, RoCE v1", r"GID\[\s*1\]:.*, RoCE v2"]
        yield Case(
            f"as/{name}",
            "alone",
            Program(("ibv_devinfo", "-v", "-d", device), tuple(lines), ("Failed", "failed")),
            sysfs=True,
            run=("--as", name),
        )
