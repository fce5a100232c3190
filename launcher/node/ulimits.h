/* ulimits.h -- limits of the user that a job will run into, said before it does. */
#ifndef LAUNCHER_ULIMITS_H
#define LAUNCHER_ULIMITS_H

/* Log a warning for each limit that is too low for `workers` workers: what fails later for want of it says
 * "too many open files" or "temporarily unavailable", whoever happens to ask. */
void ulimits_warn(int workers);

#endif
