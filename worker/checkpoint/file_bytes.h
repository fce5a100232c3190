/* file_bytes.h -- all of the bytes, where a system call may take or give less. */
#ifndef WORKER_CHECKPOINT_FILE_BYTES_H
#define WORKER_CHECKPOINT_FILE_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* 0, or -1 and errno. On a full disk what fits is written first. */
int file_write(int fd, const void *data, size_t len);

/* From offset `at`: how many bytes there were, less than `len` where the file ends; or -1 and errno. */
ssize_t file_read(int fd, uint64_t at, void *to, size_t len);

#endif
