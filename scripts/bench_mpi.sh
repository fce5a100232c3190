# bench_mpi.sh -- builds Open MPI's all-reduce for the other benchmarks. A script that has set BUILD sources this file,
# which sets `mpi` to the path of the program. If the program cannot be built, the file instead sets `why` to the
# reason, so that the benchmark can print it.
# shellcheck shell=bash disable=SC2034
mpi=$BUILD/mpi_allreduce
why=
if ! command -v mpicc.openmpi >/dev/null || ! command -v mpirun.openmpi >/dev/null; then
    why="skipped, because Open MPI is not installed"
elif ! mpicc.openmpi -O3 -o "$mpi" tests/bench/mpi/allreduce.c; then
    why="skipped, because mpicc failed"
fi
