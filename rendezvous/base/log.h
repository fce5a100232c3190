/* log.h -- one line on stderr for an operator: "ddprun: warning: ...". For shells; the core returns words instead.
 *
 * The program's name and the level are set once in main, before any thread starts. A line goes out in one write(2),
 * so lines of two processes do not mix. */
#ifndef RENDEZVOUS_BASE_LOG_H
#define RENDEZVOUS_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* `program` must live for ever. Levels above `level` are not printed. */
void log_setup(const char *program, enum log_level level);

void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

enum { GATE_MS = 1000 };

/* Lets one log line of a kind through in a second, and counts the others: strangers decide how often they annoy us, and a port
 * scanner must not be able to fill the operator's disk. A zeroed struct is an open gate. */
struct gate {
    uint64_t next_ms;
    unsigned left_out;
};

/* True when a line may be written now; *left_out says how many could not since the last one. */
static inline bool gate_pass(struct gate *gate, uint64_t now_ms, unsigned *left_out)
{
    if (now_ms < gate->next_ms) {
        gate->left_out++;
        return false;
    }
    *left_out = gate->left_out;
    *gate = (struct gate){ .next_ms = now_ms + GATE_MS };
    return true;
}

#endif
