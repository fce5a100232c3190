/* torch_look.c -- see torch_look.h.
 *
 *     python3 -> /usr/bin/python3.13    its real name says the version, its directory the prefix (a virtual environment has
 *                                       its own, with a pyvenv.cfg, which may let in the packages of the system)
 *     PREFIX/lib/python3.13/site-packages, Debian's dist-packages, PYTHONPATH, the user's own
 *     torch/version.py                  which version
 *     torch/lib/libtorch_cpu.so         does it have libuv? The client would refuse, but the reason is what the library lacks
 *
 * Who is led to a wrong one loses little: rank 0 may host the store with every PyTorch, and one that is not found fails with a
 * sentence for which the report has a hint. An interpreter whose name tells no version (pyenv's shims are scripts) is not
 * guessed about. */
#include "plan/torch_look.h"

#include "plan/elf_symbols.h"
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* From 2.4 on a client asks for libuv unless it is told not to. */
enum { TEXT_SIZE = 1024, VERSION_SIZE = 16, LIBUV_SINCE_MAJOR = 2, LIBUV_SINCE_MINOR = 4 };

struct search {
    char own[PATH_MAX]; /* the virtual environment; "" = it is none */
    char
        prefix[PATH_MAX]; /* of the interpreter itself; "" = it does not count: an environment shuts it out */
    char version[VERSION_SIZE]; /* "3.13" */
    const struct env_sources *env;
    struct torch_look *look;
};

static bool is_file(const char *directory, const char *name)
{
    char path[PATH_MAX];
    return (size_t)snprintf(path, sizeof(path), "%s/%s", directory, name) < sizeof(path) &&
           access(path, R_OK) == 0;
}

/* At most TEXT_SIZE - 1 of its bytes, as text; "" when it cannot be read. */
static void read_text(const char *directory, const char *name, char text[TEXT_SIZE])
{
    char path[PATH_MAX];
    text[0] = '\0';
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", directory, name) >= sizeof(path))
        return;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* of a pipe nothing is waited for */
    const ssize_t n = fd >= 0 ? read(fd, text, TEXT_SIZE - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
}

/* --- the interpreter ------------------------------------------------------------------------------------ */

/* The part of a list with colons that begins at `at`; returns where the next one does, NULL behind the last. */
static const char *next_part(const char *at, char part[PATH_MAX])
{
    const size_t len = strcspn(at, ":");
    snprintf(part, PATH_MAX, "%.*s", (int)len, at);
    return at[len] == ':' ? at + len + 1 : NULL;
}

bool torch_look_python(const char *name, const struct env_sources *env, char path[PATH_MAX])
{
    const char *list = env_sources_find(env, "PATH");
    char dir[PATH_MAX];
    if (strchr(name, '/') != NULL)
        return snprintf(path, PATH_MAX, "%s", name) < PATH_MAX && access(path, X_OK) == 0;
    while (list != NULL) {
        list = next_part(list, dir);
        if (snprintf(path, PATH_MAX, "%s/%s", dir[0] != '\0' ? dir : ".", name) < PATH_MAX &&
            access(path, X_OK) == 0)
            return true;
    }
    return false;
}

/* "/usr/bin/python3.13" -> "/usr", also for "bin/python3.13" in /usr. The program itself may be a link, and is not followed:
 * that of a virtual environment leads out of it. */
static bool cut_prefix(const char *program, char prefix[PATH_MAX])
{
    char dir[PATH_MAX];
    const char *slash = strrchr(program, '/'); /* a path, and not a name */
    snprintf(dir, sizeof(dir), "%.*s", (int)(slash - program) + 1, program);
    if (realpath(dir, prefix) == NULL)
        return false;
    *strrchr(prefix, '/') = '\0'; /* a real path has one */
    return true;
}

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t");
}

/* "include-system-site-packages = true", as Python reads that line: in any case, with any blanks. */
static bool lets_system_in(const char *venv)
{
    static const char key[] = "include-system-site-packages", yes[] = "true";
    char text[TEXT_SIZE];
    read_text(venv, "pyvenv.cfg", text);
    for (const char *line = text; *line != '\0'; line += line[0] == '\n') {
        const char *at = skip_blanks(line);
        if (strncasecmp(at, key, strlen(key)) == 0) {
            at = skip_blanks(at + strlen(key));
            at = *at == '=' ? skip_blanks(at + 1) : "";
            return strncasecmp(at, yes, strlen(yes)) == 0 && !isalnum((unsigned char)at[strlen(yes)]);
        }
        line += strcspn(line, "\n");
    }
    return false;
}

static bool find_python(struct search *s, const char *python)
{
    static const char stem[] = "python3.";
    char program[PATH_MAX], real[PATH_MAX];
    if (!torch_look_python(python, s->env, program) || realpath(program, real) == NULL)
        return false;
    const char *name = strrchr(real, '/') + 1; /* a real path has one */
    if (strncmp(name, stem, strlen(stem)) != 0)
        return false;
    snprintf(s->version, sizeof(s->version), "3.%.*s", (int)strspn(name + strlen(stem), "0123456789"),
             name + strlen(stem));
    if (!cut_prefix(program, s->own) || !is_file(s->own, "pyvenv.cfg"))
        s->own[0] = '\0';
    return (s->own[0] != '\0' && !lets_system_in(s->own)) || cut_prefix(real, s->prefix);
}

/* --- the library ---------------------------------------------------------------------------------------- */

static bool read_file_at(void *user, uint64_t at, void *to, size_t n)
{
    const int *fd = user;
    return at < INT64_MAX && pread(*fd, to, n, (off_t)at) == (ssize_t)n;
}

/* What cannot be told is taken for what almost all are. */
static bool lacks_libuv(const char *dir)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof(path), "%s/torch/lib/libtorch_cpu.so", dir) >= sizeof(path))
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    const struct elf_source source = { read_file_at, &fd };
    const enum elf_has has = elf_has(&source, "uv_listen", "libuv.so");
    close(fd);
    return has == ELF_HAS_NOT;
}

/* __version__ = '2.6.0+debian' */
static void read_version(const char *dir, char version[TORCH_VERSION_SIZE])
{
    static const char mark[] = "__version__ = '";
    char text[TEXT_SIZE];
    version[0] = '\0';
    read_text(dir, "torch/version.py", text);
    const char *at = strstr(text, mark);
    if (at != NULL)
        snprintf(version, TORCH_VERSION_SIZE, "%.*s", (int)strcspn(at + strlen(mark), "'\n"),
                 at + strlen(mark));
}

static bool asks_for_libuv(const char *version)
{
    int major = 0, minor = 0;
    return sscanf(version, "%d.%d", &major, &minor) == 2 &&
           (major > LIBUV_SINCE_MAJOR || (major == LIBUV_SINCE_MAJOR && minor >= LIBUV_SINCE_MINOR));
}

/* --- the places ----------------------------------------------------------------------------------------- */

static bool look_in(struct search *s, const char *dir)
{
    struct torch_look *look = s->look;
    if (!is_file(dir, "torch/lib/libtorch_cpu.so"))
        return false;
    snprintf(look->dir, sizeof(look->dir), "%s", dir);
    read_version(dir, look->version);
    look->refuses_stores = asks_for_libuv(look->version) && lacks_libuv(dir);
    return true;
}

static bool look_in_list(struct search *s, const char *list)
{
    char dir[PATH_MAX];
    while (list != NULL) {
        list = next_part(list, dir);
        if (dir[0] != '\0' && look_in(s, dir))
            return true;
    }
    return false;
}

static bool look_at_home(struct search *s)
{
    const char *home = env_sources_find(s->env, "HOME");
    char dir[PATH_MAX];
    return home != NULL && s->prefix[0] != '\0' &&
           (size_t)snprintf(dir, sizeof(dir), "%s/.local/lib/python%s/site-packages", home, s->version) <
               sizeof(dir) &&
           look_in(s, dir);
}

static bool look_in_prefix(struct search *s, const char *prefix)
{
    static const struct {
        const char *before, *behind;
    } places[] = {
        { "/lib/python", "/site-packages" },
        { "/lib64/python", "/site-packages" },
        { "/local/lib/python", "/dist-packages" },
    };
    char dir[PATH_MAX];
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if ((size_t)snprintf(dir, sizeof(dir), "%s%s%s%s", prefix, places[i].before, s->version,
                             places[i].behind) < sizeof(dir) &&
            look_in(s, dir))
            return true;
    return (size_t)snprintf(dir, sizeof(dir), "%s/lib/python3/dist-packages", prefix) < sizeof(dir) &&
           look_in(s, dir);
}

/* In the order of sys.path. */
bool torch_look(const char *python, const struct env_sources *env, struct torch_look *look)
{
    struct search s = { .env = env, .look = look };
    *look = (struct torch_look){ 0 };
    return find_python(&s, python) && (look_in_list(&s, env_sources_find(env, "PYTHONPATH")) ||
                                       (s.own[0] != '\0' && look_in_prefix(&s, s.own)) || look_at_home(&s) ||
                                       (s.prefix[0] != '\0' && look_in_prefix(&s, s.prefix)));
}
