/* allreduce.c -- measures MPI_Allreduce in place, to compare it with libddp. scripts/bench_allreduce.sh compiles it
 * with mpicc and runs it with mpirun. Prints "mpi RANKS BYTES MICROSECONDS" for each size, as bench_allreduce does for
 * libddp. */
#include "sizes.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static double measure(float *x, size_t bytes)
{
    int calls = batch_of(bytes), n = (int)(bytes / sizeof(float));

    MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < calls; i++)
        MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return (MPI_Wtime() - start) / calls * 1e6;
}

int main(int argc, char **argv)
{
    int rank, world;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    float *x = malloc(SIZE_MOST);
    for (size_t i = 0; i < SIZE_MOST / sizeof(float); i++)
        x[i] = 1;
    for (size_t bytes = SIZE_LEAST; bytes <= SIZE_MOST; bytes *= SIZE_FACTOR) {
        double us = measure(x, bytes);
        if (rank == 0)
            printf("mpi %d %zu %.3f\n", world, bytes, us);
    }
    free(x);
    MPI_Finalize();
    return 0;
}
