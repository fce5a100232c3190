/* rlimits.h -- what this process may have, for itself and for the processes that it starts. (Not limits.h: tests/lib is
 * in the way to the C library's.) */
#ifndef TESTS_LIB_RLIMITS_H
#define TESTS_LIB_RLIMITS_H

#include <stdint.h>
#include <sys/resource.h>

/* As many descriptors as the system lets us have: `most` where we are privileged, else up to the hard limit. How many. */
uint32_t limits_raise_descriptors(uint32_t most);

/* No file may grow beyond that, memory files included: EFBIG comes the same way as ENOSPC. RLIM_INFINITY = as before. */
void limits_cut_files(rlim_t bytes);

#endif
