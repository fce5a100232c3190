/* exits.h -- in which order did the workers end?
 *
 * waitpid tells who has ended in the order of birth. When two fail within one turn of a busy loop, that would make the
 * lower rank the first cause, whoever it was. */
#ifndef LAUNCHER_EXITS_H
#define LAUNCHER_EXITS_H

#include <sys/types.h>

struct exits {
    int epoll; /* one pidfd for each living worker; -1 = this kernel cannot, or no descriptor was left */
};

void exits_open(struct exits *x);

/* `pid` is a child that nobody has waited for. Without a descriptor for it, its end is not told here. */
void exits_watch(struct exits *x, pid_t pid);

/* The next worker that has ended, earliest first, 0 = no more is known. Its status is still to be waited for. */
pid_t exits_next(struct exits *x);

void exits_close(struct exits *x);

#endif
