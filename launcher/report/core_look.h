/* core_look.h -- find the core file of a worker that crashed, or say why there is none. */
#ifndef LAUNCHER_CORE_LOOK_H
#define LAUNCHER_CORE_LOOK_H

#include "report/end_words.h"

#include <sys/types.h>

#include <time.h>

/* `status` as from waitpid; `began` is the wall clock before the worker started: older files are not its.
 * Sets the core members of `facts`, and from the core file the address of the fault when it is not known
 * yet. */
void core_look(pid_t pid, int status, time_t began, struct worker_evidence *facts);

#endif
