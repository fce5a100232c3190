/* launched.h -- this worker's rank under every launcher: ddprun, Hydra, Open MPI or srun. The launchers set
 * different variables, so a program that is compared under all of them searches each variable. */
#ifndef TESTS_PROG_LAUNCHED_H
#define TESTS_PROG_LAUNCHED_H

#include <stddef.h>
#include <stdlib.h>

/* Return the rank from the first variable that is set, or 0 if none is set. */
static inline int launched_rank(void)
{
    static const char *const names[] = { "RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (getenv(names[i]) != NULL)
            return atoi(getenv(names[i]));
    return 0;
}

#endif
