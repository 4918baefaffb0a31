"""What a rank of NCCL does: collectives of PyTorch, of which every element is compared.

The ranks of one GPU are hosts to NCCL, which compares `NCCL_HOSTID`. Numbers are small and whole,
so that sums are exact.
"""

import os
import random
import sys
import time

RANK = int(os.environ["RANK"])
os.environ["NCCL_HOSTID"] = f"host-{RANK}"

import torch  # noqa: E402 (NCCL reads the variable when it is loaded)
import torch.distributed as dist  # noqa: E402

RANKS = int(os.environ["WORLD_SIZE"])
SIZES = [256, 4096, 65_536, 1 << 20, 1 << 24]


def data(elements, rank):
    """What a rank brings: another number at each place, and for each rank."""
    return (torch.arange(elements, device="cuda") % 1000 + 7 * rank).float()


def check(what, got, expected):
    wrong = int((got != expected).sum())
    if wrong:
        sys.exit(f"{what}: rank {RANK}: {wrong} of {got.numel()} elements are wrong")


def all_reduce(elements):
    mine = data(elements, RANK)
    dist.all_reduce(mine)
    check("all-reduce", mine, sum(data(elements, rank) for rank in range(RANKS)))


def all_gather(elements):
    parts = torch.empty(RANKS * elements, device="cuda")
    dist.all_gather_into_tensor(parts, data(elements, RANK))
    check("all-gather", parts, torch.cat([data(elements, rank) for rank in range(RANKS)]))


def all_to_all(elements):
    each = elements // RANKS
    parts = torch.empty(RANKS * each, device="cuda")
    dist.all_to_all_single(parts, data(RANKS * each, RANK))
    mine = slice(RANK * each, (RANK + 1) * each)
    check("all-to-all", parts, torch.cat([data(RANKS * each, rank)[mine] for rank in range(RANKS)]))


def send_recv(elements):
    before, after = (RANK - 1) % RANKS, (RANK + 1) % RANKS
    got = torch.empty(elements, device="cuda")
    ways = [
        dist.P2POp(dist.isend, data(elements, RANK), after),
        dist.P2POp(dist.irecv, got, before),
    ]
    for request in dist.batch_isend_irecv(ways):
        request.wait()
    check("send/recv", got, data(elements, before))


def train():
    """A few steps of DDP: all ranks have the same weights afterwards."""
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(64, 512, device="cuda")).square().mean().backward()
        optimizer.step()
    for weights in model.parameters():
        first = weights.detach().clone()
        dist.broadcast(first, 0)
        check("DDP", weights.detach(), first)


def many(rounds):
    """All-reduces of random sizes, the same in all ranks."""
    chance = random.Random(1)
    for _ in range(rounds):
        all_reduce(int(2 ** chance.uniform(0, 20)))


def bandwidth(elements=1 << 24, rounds=10):
    """Bus bandwidth of all-reduces of 64 MiB, in GB/s, as nccl-tests count it."""
    mine = torch.zeros(elements, device="cuda")
    dist.all_reduce(mine)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(rounds):
        dist.all_reduce(mine)
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - start) / rounds
    return 4 * elements / seconds * 2 * (RANKS - 1) / RANKS / 1e9


def main():
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    for elements in SIZES:
        for collective in (all_reduce, all_gather, all_to_all, send_recv):
            collective(elements)
    train()
    many(int(os.environ.get("ROUNDS", "50")))
    figure = bandwidth()
    if RANK == 0:
        print(f"{figure:.2f} GB/s", flush=True)
    dist.destroy_process_group()


main()
