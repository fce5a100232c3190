/* threads.h -- reads from the kernel what each thread of a process does: its state, its system call with file or peer,
 * its CPU time. The functions do not suspend the process, because the job may still make progress. If a thread may hold
 * the memory lock of the process, the functions do not read the memory, because the read could block. */
#ifndef LAUNCHER_CONTAIN_THREADS_H
#define LAUNCHER_CONTAIN_THREADS_H

#include "base/buf.h"
#include "record/stacks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct unanswered;

/* Append at most `max` threads of the process `like->pid` to `out`, an array of struct stack_thread. The main thread
 * comes first. Copy rank, host and is_child from `like`. Return the number of threads, or 0 if the process has
 * ended. */
size_t threads_read(const struct stack_thread *like, size_t max, struct buf *out);

/* Find the connections in the network namespace of process `pid` whose peers do not answer. Append these connections to
 * `out`, an array of struct unanswered, and return their number. With 10,000 connections this takes 0.1 s, so the loop
 * of the agent must not call this function. */
size_t sockets_unanswered(pid_t pid, struct buf *out);

/* Return a set of bits: bit i is 1 if the connection `of[i]` belongs to process `pid`. Only the first 64 connections
 * are examined. This takes up to 0.1 s, so the loop of the agent must not call this function. */
uint64_t process_sockets(pid_t pid, const struct unanswered *of, size_t n);

/* Return true if the process is a Python interpreter. If `thorough` is true, also return true for a program that has
 * loaded libpython; this check takes up to a few milliseconds. */
bool threads_is_python(pid_t pid, bool thorough);

/* Return true if a thread may hold the memory lock of the process for long. Reading the memory, the map or the
 * command line of the process would then block. Such a thread is uninterruptible in a page fault or in a call that
 * changes the memory map. */
bool threads_lock_memory(pid_t pid);

/* Write to `note` why py-spy (or ddprun, if `by_py_spy` is false) may not read a process. The reason is a missing
 * capability, or Yama's ptrace_scope, which is read from `file`. `is_child` is true if a worker has started the
 * process. */
void threads_explain_ptrace(const char *file, bool by_py_spy, bool is_child, char note[STACK_NOTE_MAX]);

#endif
