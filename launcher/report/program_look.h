/* program_look.h -- what lies where a program could not be started.
 *
 * execve answers with one number. This is everything that tells apart what the number leaves open; the
 * words are made of it in start_words.c. */
#ifndef LAUNCHER_PROGRAM_LOOK_H
#define LAUNCHER_PROGRAM_LOOK_H

#include "report/elf_check.h"

#include <limits.h>

/* Of the program, and of the interpreter or loader that it names. */
enum path_kind {
    PATH_UNKNOWN, /* it was not looked at, or could not be */
    PATH_MISSING, /* no such file */
    PATH_DIRECTORY,
    PATH_NO_FILE,    /* a device, a pipe, a socket */
    PATH_NO_X,       /* a file without x permission */
    PATH_EXECUTABLE, /* a file that may be executed, as far as permissions go */
};

enum { INTERPRETER_MAX = 256 };

struct program_look {
    char path[PATH_MAX]; /* what was looked at */
    enum path_kind kind;
    bool is_python_file;   /* Python was to run it: `path` is what the user wrote */
    char near[PATH_MAX];   /* of a missing one: a file beside it whose name differs by a slip; "" = none */
    bool empty;            /* a file of 0 bytes */
    bool noexec;           /* on a file system mounted noexec */
    char locked[PATH_MAX]; /* the first directory above it that may not be entered; "" = none */
    char interpreter[INTERPRETER_MAX]; /* of a script, behind "#!" and without arguments; "" = no script */
    bool carriage_return;              /* the script's first line ends in \r\n */
    struct elf_look elf;               /* of a program */
    enum path_kind helper;             /* what lies at `interpreter` or elf.interpreter */
    unsigned long long processes_max;  /* ulimit -u here; 0 = unlimited or not known */
};

/* The part that only reads: what `head`, the first bytes of the file, say. `ours` are those of a program
 * that runs here. Sets empty, interpreter, carriage_return and elf. */
void program_look_at_bytes(struct program_look *look, struct slice head, struct slice ours);

#endif
