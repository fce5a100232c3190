/* record_text.h -- what a running job leaves in a file about itself, as text.
 *
 * The next start of ddprun on this host reads it (record.h). It kills by it, so nothing in it is believed that does
 * not look exactly as we write it. */
#ifndef LAUNCHER_RECORD_TEXT_H
#define LAUNCHER_RECORD_TEXT_H

#include "base/buf.h"
#include "contain/cgroup_path.h"
#include "contain/proc_stat.h"
#include "tables/worker_env.h"

#include <stdint.h>

enum {
    RECORD_BOOT_CHARS = BOOT_ID_CHARS,
    RECORD_JOB_MAX = 129,
    RECORD_MAX = 8192 /* bytes of text */
};

/* A process: the pid and when it was started. */
struct record_process {
    int pid;
    uint64_t start_ticks;
};

/* Text without newlines. */
struct record {
    char boot[RECORD_BOOT_CHARS + 1]; /* pids and times are of this boot of the machine, */
    uint64_t pid_namespace;           /* seen in this namespace */
    struct record_process guardian, agent;
    char cookie[COOKIE_CHARS + 1];
    char job[RECORD_JOB_MAX];
    char cgroup[CGROUP_PATH_MAX]; /* directory of the job's control group; "" = none */
};

/* Append the text. False when memory is short, or a text of the record has a newline. */
bool record_print(struct buf *out, const struct record *r);

/* False when it is not the whole text of a record. */
bool record_parse(const char *text, struct record *out);

#endif
