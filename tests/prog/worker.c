/* worker.c -- a worker that executes its arguments one after the other.
 *
 *     worker say:hello only:1 exit:7
 *
 * An argument is NAME or NAME:VALUE; the table `actions` lists them. "only:RANK" makes every other rank skip arguments,
 * until the next "only" or "all". After the last argument, the worker exits with 0. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static bool skipping;

static int rank(void)
{
    const char *text = getenv("RANK");
    return text != NULL ? atoi(text) : 0;
}

static void put(int fd, const char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        ssize_t n = write(fd, text, left);
        if (n < 0)
            _exit(111);
        text += n;
        left -= (size_t)n;
    }
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

/* Write text and newline in one write. */
static void put_line(int fd, const char *text)
{
    char line[8192];
    snprintf(line, sizeof(line), "%.8000s\n", text);
    put(fd, line);
}

static void do_say(const char *text)
{
    put_line(STDOUT_FILENO, text);
}

static void do_err(const char *text)
{
    put_line(STDERR_FILENO, text);
}

static void do_part(const char *text)
{
    put(STDOUT_FILENO, text);
}

/* Print a progress bar: three updates, of which the last one stays. */
static void do_bar(const char *text)
{
    (void)text;
    put(STDOUT_FILENO, "  1%\r 50%\r");
    put(STDOUT_FILENO, "100%\n");
}

/* Write many bytes without a newline. */
static void do_long(const char *count)
{
    char block[1024];
    memset(block, 'z', sizeof(block) - 1);
    block[sizeof(block) - 1] = '\0';
    for (long left = atol(count); left > 0; left -= 1023)
        put(STDOUT_FILENO, block);
    put(STDOUT_FILENO, "\n");
}

static void do_spam(const char *lines)
{
    for (long i = 0, n = atol(lines); i < n; i++) {
        char line[64];
        snprintf(line, sizeof(line), "line %ld\n", i);
        put(STDOUT_FILENO, line);
    }
}

static void do_exit(const char *code)
{
    _exit(atoi(code));
}

static void do_raise(const char *sig)
{
    signal(atoi(sig), SIG_DFL);
    raise(atoi(sig));
}

static void do_ignore(const char *sig)
{
    signal(atoi(sig), SIG_IGN);
}

static volatile sig_atomic_t caught;

static void on_caught(int sig)
{
    char line[] = "caught ??\n";
    line[7] = (char)('0' + sig / 10);
    line[8] = (char)('0' + sig % 10);
    put(STDOUT_FILENO, line);
    caught = 1;
}

/* Print "caught NN" each time that signal `sig` arrives. */
static void do_catch(const char *sig)
{
    signal(atoi(sig), on_caught);
}

/* Wait until a signal is caught. If a signal was caught earlier, continue at once. */
static void do_pause(const char *unused)
{
    (void)unused;
    while (!caught)
        sleep_ms(5);
}

static void do_sleep(const char *ms)
{
    sleep_ms(atol(ms));
}

static void do_forever(const char *unused)
{
    (void)unused;
    for (;;)
        pause();
}

/* Keep a FIFO open for writing. A reader gets the end of the file when the last process with the FIFO open has
 * ended. */
static void do_hold(const char *fifo)
{
    if (open(fifo, O_WRONLY) < 0)
        _exit(112);
}

static void do_child(const char *unused)
{
    if (fork() == 0)
        do_forever(unused);
}

/* Become a daemon: fork, a new session, fork again. */
static void do_daemon(const char *unused)
{
    if (fork() != 0)
        return;
    setsid();
    if (fork() != 0)
        _exit(0);
    signal(SIGTERM, SIG_IGN);
    do_forever(unused);
}

/* Start a chain of processes that each live only a moment: fork, setsid, end of the parent, and again. */
static void do_chain(const char *unused)
{
    (void)unused;
    if (fork() != 0)
        return;
    for (;;) {
        setsid();
        if (fork() != 0)
            _exit(0);
    }
}

static void do_env(const char *unused)
{
    (void)unused;
    for (char **e = environ; *e != NULL; e++)
        do_say(*e);
}

static void do_stdin(const char *unused)
{
    char text[4096];
    (void)unused;
    ssize_t n = read(STDIN_FILENO, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    do_say(n >= 0 ? text : strerror(errno));
}

/* Print everything that a launcher may leak to a worker: ignored and blocked signals, the process group, and
 * descriptors above 2. */
static void do_state(const char *unused)
{
    char line[256];
    sigset_t blocked;
    int n_blocked = 0, n_ignored = 0, n_fds = 0;
    (void)unused;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    for (int sig = 1; sig < 32; sig++) {
        struct sigaction now;
        n_blocked += sigismember(&blocked, sig) == 1;
        n_ignored += sigaction(sig, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
    }
    for (int fd = 3; fd < 1024; fd++)
        n_fds += fcntl(fd, F_GETFD) >= 0;
    snprintf(line, sizeof(line), "blocked=%d ignored=%d fds=%d leader=%d", n_blocked, n_ignored, n_fds,
             getpgrp() == getpid());
    do_say(line);
}

static void do_only(const char *which)
{
    skipping = atoi(which) != rank();
}

/* Read a byte at an address, as a program with an invalid pointer does. */
static void do_touch(const char *address)
{
    volatile const char *p = (const char *)(uintptr_t)strtoull(address, NULL, 0);
    _exit(*p);
}

/* Fill memory, page by page. */
static void do_eat(const char *mib)
{
    for (long i = 0; i < atol(mib); i++) {
        char *p = malloc(1 << 20);
        if (p == NULL)
            _exit(114);
        memset(p, 1, 1 << 20);
    }
}

/* Fill shared memory in the same way as data loaders and NCCL. The file has its full length at once, and pages are
 * allocated when they are touched. */
static void do_shm(const char *mib)
{
    size_t size = (size_t)atol(mib) << 20;
    int fd = open("/dev/shm/ddprun-test-worker", O_RDWR | O_CREAT | O_TRUNC, 0600);
    char *p = fd >= 0 && ftruncate(fd, (off_t)size) == 0 ? mmap(NULL, size, PROT_WRITE, MAP_SHARED, fd, 0)
                                                         : MAP_FAILED;
    if (p == MAP_FAILED)
        _exit(115);
    memset(p, 1, size);
}

/* Write the error file of torch's @record. */
static void do_record(const char *text)
{
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    int fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
    if (fd < 0)
        _exit(116);
    put(fd, text);
    close(fd);
}

static const struct {
    const char *name;
    void (*run)(const char *value);
} actions[] = {
    { "say", do_say },       { "err", do_err },       { "part", do_part },   { "bar", do_bar },
    { "long", do_long },     { "spam", do_spam },     { "exit", do_exit },   { "raise", do_raise },
    { "ignore", do_ignore }, { "sleep", do_sleep },   { "hold", do_hold },   { "forever", do_forever },
    { "child", do_child },   { "daemon", do_daemon }, { "chain", do_chain }, { "env", do_env },
    { "stdin", do_stdin },   { "state", do_state },   { "only", do_only },   { "catch", do_catch },
    { "pause", do_pause },   { "touch", do_touch },   { "eat", do_eat },     { "shm", do_shm },
    { "record", do_record },
};

static int act(const char *arg)
{
    size_t len = strcspn(arg, ":");
    if (strcmp(arg, "all") == 0) {
        skipping = false;
        return 0;
    }
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (strncmp(actions[i].name, arg, len) != 0 || actions[i].name[len] != '\0')
            continue;
        if (!skipping || actions[i].run == do_only)
            actions[i].run(arg[len] == ':' ? arg + len + 1 : "");
        return 0;
    }
    fprintf(stderr, "worker: what is '%s'?\n", arg);
    return 1;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (act(argv[i]) != 0)
            return 113;
    return 0;
}
