/* log.h -- one line on stderr for an operator: "ddprun: warning: ...". Shells only; the core returns words instead.
 *
 * The program's name and the level are set once in main, before any thread starts. A line goes out in one write(2),
 * so lines of two processes do not mix. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* `program` must live for ever. Levels above `level` are not printed. */
void log_setup(const char *program, enum log_level level);

void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

#endif
