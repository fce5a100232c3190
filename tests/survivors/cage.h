/* cage.h -- limits the processes of a trial and, for an out-of-memory fault, its memory. Root uses control groups;
 * other users RLIMIT_NPROC, which leaves memory unlimited. */
#ifndef TESTS_SURVIVORS_CAGE_H
#define TESTS_SURVIVORS_CAGE_H

#include <stdbool.h>

struct cage {
    char processes[160], memory[160]; /* directories of the groups, or "" */
    bool memory_v1;
};

/* Return true if memory can be limited here. */
bool cage_has_memory(void);

/* Return true if processes can be limited: root needs control groups. */
bool cage_has_processes(void);

/* Create a trial's groups, named by the calling process's pid. */
void cage_open(struct cage *c, bool with_memory);

/* Enter the groups, in the child that becomes the launcher. */
void cage_enter(const struct cage *c);

/* Return how many processes the kernel has killed for lack of memory. */
int cage_oom_kills(const struct cage *c);

/* Remove the groups, whose processes must have ended. */
void cage_close(struct cage *c);

#endif
