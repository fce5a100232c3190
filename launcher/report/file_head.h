/* file_head.h -- the first bytes of a file that may be anything. */
#ifndef LAUNCHER_FILE_HEAD_H
#define LAUNCHER_FILE_HEAD_H

#include "base/slice.h"

/* Up to `size` bytes, into `bytes`. Empty when the file is not there or cannot be read; never waits. */
struct slice file_head(const char *path, char *bytes, size_t size);

#endif
