#!/bin/bash
# ib_write_bw between two nodes of a Slurm cluster without RDMA adapters, and without privilege on them:
#
#   sbatch packaging/examples/slurm.sh
#
# `roce` and `ib_write_bw` are in PATH on the nodes, or in a directory that all of them see. INTERFACE is the network
# interface between them; what Slurm and MPI need for ranks is in docs/guide/programs/mpi.md.
#SBATCH --job-name=roce
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=5
set -eu
export INTERFACE=${INTERFACE-eth0}
SERVER=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export SERVER

srun --ntasks=2 --kill-on-bad-exit=1 bash -euc '
    test_bandwidth() { roce run -- ib_write_bw -F -d "roce_$INTERFACE" -x 1 --report_gbits "$@"; }
    if [ "$SLURM_PROCID" = 0 ]; then
        test_bandwidth
    else
        until test_bandwidth "$SERVER"; do sleep 1; done
    fi'
