/* spawn_error.h -- texts about why a program could not be started. program_check_bytes compares the first bytes of the
 * file with the first bytes of a program that runs on this machine. The functions are pure; the functions of evidence.h
 * read the files. */
#ifndef LAUNCHER_REPORT_SPAWN_ERROR_H
#define LAUNCHER_REPORT_SPAWN_ERROR_H

#include "base/buf.h"
#include "report/exit_text.h"

#include <limits.h>

enum elf_kind {
    ELF_NONE,       /* not an ELF file */
    ELF_RUNS,       /* a program for this kind of machine */
    ELF_CUT,        /* shorter than its header says, or damaged */
    ELF_BYTE_ORDER, /* for a machine with another byte order */
    ELF_MACHINE,    /* for another processor */
    ELF_BITS,       /* for the same kind of processor, but with 32 instead of 64 bits, or 64 instead of 32 */
    ELF_NO_PROGRAM, /* an object file or a core dump */
};

enum { ELF_INTERPRETER_MAX = 256 };

struct elf_facts {
    enum elf_kind kind;
    int machine, bits;         /* e_machine and word size of the file; 0 if the header is too short */
    int our_machine, our_bits; /* e_machine and word size of a program that this host can run */
    char interpreter[ELF_INTERPRETER_MAX]; /* path of the loader; "" if not found */
};

/* The kind of file at the path of a program, of its interpreter or of its loader. */
enum path_kind {
    PATH_UNKNOWN, /* not examined, or cannot be examined */
    PATH_MISSING,
    PATH_DIRECTORY,
    PATH_NO_FILE, /* a device, a pipe or a socket */
    PATH_NO_X,    /* a file without x permission */
    PATH_EXECUTABLE,
};

enum { INTERPRETER_MAX = 256 };

/* Facts about a program that could not be started. The errno of execve has several possible causes, and these facts
 * show the cause. */
struct program_file {
    char path[PATH_MAX]; /* the path that was examined; may be "" */
    enum path_kind kind;
    bool is_python_file; /* `path` is the script for Python; if false, `path` is the program itself */
    char near[PATH_MAX]; /* if `path` does not exist: a similar path in the same directory; may be "" */
    bool empty;
    bool noexec; /* the file system is mounted noexec */
    /* first directory that this user may not enter; may be "" */
    char locked[PATH_MAX];
    char interpreter[INTERPRETER_MAX]; /* the name after "#!" without arguments; "" if not a script */
    bool carriage_return;              /* "\r\n" follows the name, so \r becomes a part of the name */
    struct elf_facts elf;              /* the header of a binary program */
    enum path_kind helper;             /* kind of the file that `interpreter` or elf.interpreter names */
};

/* Examine `head`, the first bytes of the file. Set the members `empty`, `interpreter`, `carriage_return` and `elf`.
 * `own` contains the first bytes of a program that runs on this machine. */
void program_check_bytes(struct program_file *file, struct slice head, struct slice own);

/* The facts about a program that could not be started; all pointers are borrowed. */
struct start_failure {
    int error;           /* errno of execve, of the search in PATH, or of fork */
    const char *program; /* name of the program, as the user wrote it */
    const char *path;    /* PATH of the worker; NULL if not set */
    const struct program_file *file;
    const struct worker_evidence *limits; /* only the limits in this struct are used; NULL if not known */
};

/* Append why the program could not be started: "./train: no such file". Return false when memory is short. */
bool start_cause(const struct start_failure *f, struct buf *out);

/* Append the remedy, for example "chmod +x ./train", or nothing if no remedy is known. */
bool start_remedy(const struct start_failure *f, struct buf *out);

#endif
