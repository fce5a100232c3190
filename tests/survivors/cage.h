/* cage.h -- limits the number of processes of one trial, so that the machine survives the trial. For an out-of-memory
 * fault, also limits the memory. Root uses control groups of version 1 or 2. Other users use RLIMIT_NPROC and cannot
 * limit the memory. */
#ifndef TESTS_SURVIVORS_CAGE_H
#define TESTS_SURVIVORS_CAGE_H

#include <stdbool.h>

struct cage {
    char processes[160], memory[160]; /* directories of the control groups; "" if not created */
    bool memory_v1;
};

/* Return true if memory can be limited on this machine. */
bool cage_has_memory(void);

/* Return true if the number of processes can be limited. Root needs control groups for this, because RLIMIT_NPROC does
 * not apply to root. */
bool cage_has_processes(void);

/* Create the control groups of a trial. Their names contain the pid of the calling process. */
void cage_open(struct cage *c, bool with_memory);

/* Enter the groups, in the child that becomes the launcher. */
void cage_enter(const struct cage *c);

/* Return how many processes the kernel has killed for lack of memory. */
int cage_oom_kills(const struct cage *c);

/* Remove the groups. All processes in the groups must have ended. */
void cage_close(struct cage *c);

#endif
