/* Point-to-point, collective and one-sided operations of MPI, whose results are checked, and the
 * bandwidth between the first two ranks. With the argument "replace", MPI_REPLACE is among them. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (1 << 20)
#define MESSAGES 200
#define ROUNDS 200
#define CELLS 64

static int rank, ranks;

static void want(int right, const char *what)
{
	if (right)
		return;
	fprintf(stderr, "rank %d of %d: %s is wrong\n", rank, ranks, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Messages of all sizes around a ring. */
static void ring(void)
{
	static unsigned char sent[BYTES], received[BYTES];
	int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;

	for (int size = 1; size <= BYTES; size *= 4) {
		memset(sent, rank + size % 251, size);
		MPI_Sendrecv(sent, size, MPI_BYTE, next, 1, received, size, MPI_BYTE, previous, 1,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (int i = 0; i < size; i++)
			want(received[i] == (unsigned char)(previous + size % 251), "a message");
	}
}

static void collective(void)
{
	long sum, parts[64], gathered[64];

	for (long round = 0; round < ROUNDS; round++) {
		long mine = rank + round;

		MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
		want(sum == ranks * (ranks - 1) / 2 + ranks * round, "a sum");
		for (int i = 0; i < ranks; i++)
			parts[i] = 1000 * rank + i + round;
		MPI_Alltoall(parts, 1, MPI_LONG, gathered, 1, MPI_LONG, MPI_COMM_WORLD);
		for (int i = 0; i < ranks; i++)
			want(gathered[i] == 1000 * i + rank + round, "a part");
	}
}

/* What is read and changed at once must be the value before; sums must lose nothing. */
static void one_sided(int replace)
{
	long *cells, fetched[CELLS], put[CELLS], one = 1, got;
	int next = (rank + 1) % ranks;
	MPI_Win window;

	MPI_Win_allocate(CELLS * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &cells,
			 &window);
	for (int i = 0; i < CELLS; i++)
		cells[i] = -1;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, window);
	for (long round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < CELLS; i++)
			put[i] = replace ? 100 * round + i : i;
		MPI_Get_accumulate(put, CELLS, MPI_LONG, fetched, CELLS, MPI_LONG, next, 0, CELLS,
				   MPI_LONG, replace ? MPI_REPLACE : MPI_SUM, window);
		MPI_Win_flush(next, window);
		for (long i = 0; i < CELLS; i++) {
			long before = replace ? put[i] - 100 : i * round - 1;

			want(fetched[i] == (round ? before : -1), "what was before");
		}
		MPI_Get(fetched, CELLS, MPI_LONG, next, 0, CELLS, MPI_LONG, window);
		MPI_Win_flush(next, window);
		for (long i = 0; i < CELLS; i++)
			want(fetched[i] == (replace ? put[i] : i * (round + 1) - 1), "what is there");
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		long zero = 0;

		MPI_Put(&zero, 1, MPI_LONG, 1, 0, 1, MPI_LONG, window);
		MPI_Win_flush(1, window);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	for (int round = 0; round < ROUNDS; round++) {
		if (rank == 1)
			continue;
		MPI_Fetch_and_op(&one, &got, MPI_LONG, 1, 0, MPI_SUM, window);
		MPI_Win_flush(1, window);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		MPI_Get(&got, 1, MPI_LONG, 1, 0, 1, MPI_LONG, window);
		MPI_Win_flush(1, window);
		want(got == (long)ROUNDS * (ranks - 1), "the count");
	}
	MPI_Win_unlock_all(window);
	MPI_Win_free(&window);
}

static void bandwidth(void)
{
	static char buffer[BYTES];
	char done = 0;

	for (int warm = 1; warm >= 0; warm--) {
		int messages = warm ? MESSAGES / 10 : MESSAGES;
		double started;

		MPI_Barrier(MPI_COMM_WORLD);
		started = MPI_Wtime();
		for (int i = 0; i < messages && rank < 2; i++) {
			if (rank == 0)
				MPI_Send(buffer, BYTES, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
			else
				MPI_Recv(buffer, BYTES, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		}
		if (rank == 0) {
			MPI_Recv(&done, 1, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			if (!warm)
				printf("bandwidth %.1f MB/s\n",
				       1e-6 * BYTES * messages / (MPI_Wtime() - started));
		} else if (rank == 1) {
			MPI_Send(&done, 1, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
		}
	}
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	ring();
	collective();
	one_sided(argc > 1 && !strcmp(argv[1], "replace"));
	bandwidth();
	if (rank == 0)
		printf("%d ranks, all right\n", ranks);
	MPI_Finalize();
	return 0;
}
