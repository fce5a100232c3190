/* host_look.h -- the facts behind host_findings.h, from this machine. */
#ifndef LAUNCHER_HOST_LOOK_H
#define LAUNCHER_HOST_LOOK_H

#include "report/host_findings.h"

/* What `workers` workers on `host` will run into here; returns how many. */
int host_look(int workers, const char *host, struct finding out[HOST_FINDINGS_MAX]);

/* Log a warning for each. */
void host_warn(int workers, const char *host);

#endif
