/* schedulers.h -- the schedulers that may have started ddprun. --scheduler, the manual page and the readers in
 * plan/ use these rows. */
#ifndef LAUNCHER_SCHEDULERS_H
#define LAUNCHER_SCHEDULERS_H

/* Columns: id, name for --scheduler, title, rule (which variables identify the scheduler), values that the
 * scheduler provides. The innermost scheduler is first, so mpirun comes before the Slurm job in which it runs. */
/* clang-format off */
#define SCHEDULERS(X)                                                                                        \
    X(OPEN_MPI, "openmpi", "Open MPI",                                                                       \
      "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE are set",                                               \
      "nodes and node rank; the address only inside Slurm, PBS or LSF")                                   \
    X(HYDRA, "hydra", "MPICH's Hydra",                                                                       \
      "PMI_RANK, PMI_SIZE and MPI_LOCALRANKID are set",                                                      \
      "like Open MPI")                                                                                         \
    X(SLURM, "slurm", "Slurm",                                                                               \
      "SLURM_JOB_ID is set",                                                                                 \
      "nodes, node rank, address (first host of the step), port, GPUs (SLURM_GPUS_ON_NODE), job id")         \
    X(PYTORCHJOB, "pytorchjob", "Kubernetes (PyTorchJob)",                                                   \
      "KUBERNETES_SERVICE_HOST, MASTER_ADDR, WORLD_SIZE and RANK are set",                                   \
      "pods as nodes, node rank, address, port, job id; PET_* variables of the operator are options")        \
    X(KUBERNETES, "kubernetes", "Kubernetes (indexed Job)",                                                  \
      "KUBERNETES_SERVICE_HOST and JOB_COMPLETION_INDEX are set",                                            \
      "node rank, address of pod 0 (with a headless service), job id; give --nnodes")                         \
    X(PBS, "pbs", "PBS",                                                                                     \
      "PBS_JOBID and PBS_NODEFILE are set",                                                                  \
      "nodes, node rank, address (first host of the file), port, job id")                                    \
    X(LSF, "lsf", "LSF",                                                                                     \
      "LSB_JOBID and LSB_MCPU_HOSTS or LSB_HOSTS are set",                                                   \
      "nodes, node rank, address (first host of the list), port, job id")
/* clang-format on */

#endif
