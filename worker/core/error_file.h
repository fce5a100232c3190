/* error_file.h -- the last words of a worker for its launcher (torchrun's TORCHELASTIC_ERROR_FILE). */
#ifndef WORKER_CORE_ERROR_FILE_H
#define WORKER_CORE_ERROR_FILE_H

/* Write {"message": why, "exit_code": code, "timestamp": "seconds"} to `path`. There is nobody left to
 * tell when that fails, so it returns nothing. */
void error_file_write(const char *path, int code, const char *why);

#endif
