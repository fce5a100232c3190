/* threads.h -- reads from the kernel what each thread of a process does, without suspending the process. If a thread
 * may hold the memory lock, the memory is not read, because the read could block. */
#ifndef LAUNCHER_CONTAIN_THREADS_H
#define LAUNCHER_CONTAIN_THREADS_H

#include "base/buf.h"
#include "record/stacks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct unanswered;

/* Append at most `max` threads of the process `like->pid` to `out`, an array of struct stack_thread, the main thread
 * first. Copy rank, host and is_child from `like`. Return the number of threads, or 0 if the process has ended. */
size_t threads_read(const struct stack_thread *like, size_t max, struct buf *out);

/* Append the connections in the network namespace of `pid` whose peers do not answer to `out`, an array of struct
 * unanswered. Return their number. Do not call this from the loop: with 10,000 connections it takes 0.1 s. */
size_t sockets_unanswered(pid_t pid, struct buf *out);

/* Return a set of bits: bit i is 1 if the connection `of[i]` belongs to process `pid`. Only the first 64 connections
 * are examined. Do not call this from the loop: it takes up to 0.1 s. */
uint64_t process_sockets(pid_t pid, const struct unanswered *of, size_t n);

/* Return true if the process is a Python interpreter. If `thorough` is true, a program that has loaded libpython
 * counts, too; this check takes a few milliseconds. */
bool threads_is_python(pid_t pid, bool thorough);

/* Return true if a thread may hold the memory lock of the process for long: it is uninterruptible in a page fault or in
 * a call that changes the memory map. Reading the memory or the command line would then block. */
bool threads_lock_memory(pid_t pid);

/* Return false if the kernel forbids reading the system calls of `pid`. */
bool threads_may_trace(pid_t pid);

/* Write to `note` why py-spy (or ddprun, if `by_py_spy` is false) may not read a process. `file` contains Yama's
 * ptrace_scope. `is_child`: a worker has started the process. */
void threads_explain_ptrace(const char *file, bool by_py_spy, bool is_child, char note[STACK_NOTE_MAX]);

#endif
