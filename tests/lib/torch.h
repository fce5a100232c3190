/* torch.h -- a genuine PyTorch for end-to-end tests: which interpreter has it, and jobs of the programs in tests/interop/. */
#ifndef TESTS_LIB_TORCH_H
#define TESTS_LIB_TORCH_H

#include <stdbool.h>

/* $DDP_PYTHON (`make interop PYTHON=...`), else Debian's. */
const char *torch_python(void);

/* Skips the test where that interpreter has no torch. */
void torch_skip_without(void);

/* Skips the test under a sanitizer: most of its time is PyTorch's, and the plain run has asked. */
void torch_skip_sanitized(void);

/* Is the torch at hand of 1.x? False without one. */
bool torch_is_old(void);

/* Was the torch at hand built without libuv, so that its clients use no store but those that it hosts? */
bool torch_refuses_stores(void);

/* Skip the test where that interpreter has no torch, or one whose TCPStore works only with a store that PyTorch hosts without libuv
 * (Debian 13). */
void torch_skip_without_libuv(void);

/* The number that $NAME says, else `usual`, a tenth of it with sanitizers: how often `make interop` repeats what `make test`
 * only samples. */
int torch_number(const char *name, int usual);

/* Environment for a job whose workers shall run that interpreter: PYTHON_EXEC and no more threads than needed. */
const char *const *torch_env(void);

#endif
