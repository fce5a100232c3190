/* threads.h -- what each thread of a process does, as the kernel shows it: state, system call with its file or peer, CPU time. */
#ifndef LAUNCHER_CONTAIN_THREADS_H
#define LAUNCHER_CONTAIN_THREADS_H

#include "base/buf.h"
#include "record/stacks.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Append at most `max` threads of the process `like->pid` to `out`, an array of struct stack_thread, its main thread first. The members
 * rank, host and is_child are those of `like`. Return how many; 0 when the process has ended. */
size_t threads_read(const struct stack_thread *like, size_t max, struct buf *out);

/* Is it a Python interpreter? With `thorough` also a program that has loaded libpython, which takes up to a few milliseconds. */
bool threads_is_python(pid_t pid, bool thorough);

/* True if a thread may hold the lock of the process's memory for long: it is uninterruptible in a page fault or in a call that changes the
 * map, as when a network file system does not answer. Then a read of the memory, the map or the command line would block as well. */
bool threads_lock_memory(pid_t pid);

/* Print the state of a thread, the letter of /proc/PID/stat, and where in the kernel it is ("" = not known): "sleeping in read". */
void thread_words(char state, const char *where, char to[STACK_NAME_MAX]);

/* Parse a line of /proc/PID/syscall: number and the first `n` arguments. False: the thread runs, or is in no system call. */
bool syscall_parse(const char *line, long *number, unsigned long *args, int n);

#endif
