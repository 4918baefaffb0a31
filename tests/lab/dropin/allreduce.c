/* Sums over two ranks and more, of one element and of many, each of which is checked. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define LARGEST (1 << 20)

int main(int argc, char **argv)
{
    int rank, ranks, count, at, sums = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int *mine = malloc(LARGEST * sizeof *mine), *sum = malloc(LARGEST * sizeof *sum);
    for (count = 1; count <= LARGEST; count *= 4) {
        for (at = 0; at < count; at++)
            mine[at] = (rank + 1) * (at % 1000 + count % 7);
        MPI_Allreduce(mine, sum, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        for (at = 0; at < count; at++)
            if (sum[at] != ranks * (ranks + 1) / 2 * (at % 1000 + count % 7)) {
                fprintf(stderr, "rank %d: element %d of %d is wrong\n", rank, at, count);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        sums++;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks, %d sums, all right\n", ranks, sums);
    free(mine);
    free(sum);
    MPI_Finalize();
    return 0;
}
