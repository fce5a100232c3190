/* torch_look.c -- see torch_look.h.
 *
 *     python3 -> /usr/bin/python3.13    the real name contains the version, the real directory the prefix
 *     pyvenv.cfg                        shows a virtual environment, and whether it uses system packages
 *     torch/lib/libtorch_cpu.so         contains libuv if it needs libuv.so or defines uv_listen
 *
 * A wrong result costs little, because the report then has a hint. No result is found for an interpreter without a
 * version in its name (pyenv's shims). */
#include "plan/torch_look.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UV_SINCE "2.4" /* since this version, PyTorch's client requires libuv by default */
enum { TEXT_SIZE = 1024, SEGMENTS_MAX = 64, ENTRIES_MAX = 1024, CHAIN_MAX = 4096 };

struct interpreter {
    char own[PATH_MAX];    /* prefix of the virtual environment; "" = none */
    char prefix[PATH_MAX]; /* prefix of the interpreter; "" = a virtual environment hides its packages */
    char version[16];      /* "3.13" */
};

/* Open DIR/NAME without blocking, because it may be a FIFO. Return -1 on failure. */
static int open_in(const char *dir, const char *name)
{
    char path[PATH_MAX + 64]; /* a name that does not fit is cut and cannot be opened */
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* Read the first bytes of DIR/NAME as text. Write "" on failure. */
static void read_text(const char *dir, const char *name, char text[TEXT_SIZE])
{
    const int fd = open_in(dir, name);
    const ssize_t n = fd >= 0 ? read(fd, text, TEXT_SIZE - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
}

/* Copy the first part of a colon-separated list. Return the rest of the list, or NULL after the last part. */
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

/* Get the prefix of a program: "/usr" for "/usr/bin/python3.13". Only links in the directory are resolved, because
 * the python of a virtual environment is itself a link to another directory. */
static bool cut_prefix(const char *program, char prefix[PATH_MAX])
{
    char dir[PATH_MAX + sizeof("/..")];
    snprintf(dir, sizeof(dir), "%.*s/..", (int)(strrchr(program, '/') - program), program);
    return realpath(dir, prefix) != NULL;
}

/* Find the interpreter's version and prefixes. Case and blanks in "include-system-site-packages = true" do not
 * matter, as in Python. */
static bool find_python(struct interpreter *s, const char *python, const struct env_sources *env)
{
    static const char key[] = "include-system-site-packages";
    char program[PATH_MAX], real[PATH_MAX], settings[TEXT_SIZE];
    int minor;
    if (!torch_look_python(python, env, program) || realpath(program, real) == NULL ||
        sscanf(strrchr(real, '/'), "/python3.%3d", &minor) != 1 || !cut_prefix(program, s->own))
        return false;
    snprintf(s->version, sizeof(s->version), "3.%d", minor);
    read_text(s->own, "pyvenv.cfg", settings);
    s->own[0] = settings[0] != '\0' ? s->own[0] : '\0';
    const char *at = strcasestr(settings, key);
    at = at != NULL ? at + strlen(key) + strspn(at + strlen(key), " \t=") : "";
    return (s->own[0] != '\0' && strncasecmp(at, "true", 4) != 0) || cut_prefix(real, s->prefix);
}

static bool read_at(int fd, uint64_t at, void *to, size_t n)
{
    return at < INT64_MAX && pread(fd, to, n, (off_t)at) == (ssize_t)n;
}

/* Return the file offset of a memory address, or UINT64_MAX if the file does not contain it. */
static uint64_t file_offset(const Elf64_Phdr *segments, size_t n, uint64_t address)
{
    for (const Elf64_Phdr *s = segments; s < segments + n; s++)
        if (s->p_type == PT_LOAD && address >= s->p_vaddr && address - s->p_vaddr < s->p_filesz)
            return s->p_offset <= INT64_MAX ? s->p_offset + (address - s->p_vaddr) : UINT64_MAX;
    return UINT64_MAX;
}

/* Return true if the GNU hash table at file offset `table` does not contain `name`. The table's head contains the
 * number of buckets, the first symbol and the size of the filter. A bucket contains the first symbol of a chain.
 * The lowest bit of a hash marks the end of a chain. If a hash is equal, the name counts as found. */
static bool hash_table_lacks(int fd, uint64_t table, const char *name)
{
    uint32_t hash = 5381, head[4], index, link;
    for (; *name != '\0'; name++)
        hash = hash * 33 + (unsigned char)*name;
    if (!read_at(fd, table, head, sizeof(head)) || head[0] == 0)
        return false;
    const uint64_t buckets = table + sizeof(head) + (uint64_t)head[2] * sizeof(uint64_t);
    const uint64_t chains = buckets + (uint64_t)head[0] * sizeof(index);
    if (!read_at(fd, buckets + (uint64_t)(hash % head[0]) * sizeof(index), &index, sizeof(index)))
        return false;
    for (int i = 0; index != 0 && index >= head[1] && i < CHAIN_MAX; i++, index++) {
        if (!read_at(fd, chains + (uint64_t)(index - head[1]) * sizeof(link), &link, sizeof(link)) ||
            (link | 1) == (hash | 1))
            return false;
        if (link & 1)
            return true;
    }
    return index == 0;
}

/* Return true if the library neither needs libuv.so nor defines uv_listen. Return false if it cannot be read. */
static bool lacks_libuv(int fd)
{
    static const char libuv[] = "libuv.so";
    Elf64_Ehdr header;
    Elf64_Phdr segments[SEGMENTS_MAX];
    Elf64_Dyn entries[ENTRIES_MAX] = { 0 }; /* the last entry has the tag DT_NULL */
    uint64_t names = UINT64_MAX, table = UINT64_MAX;
    char needed[sizeof(libuv)] = { 0 };
    if (!read_at(fd, 0, &header, sizeof(header)) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phnum > SEGMENTS_MAX ||
        !read_at(fd, header.e_phoff, segments, header.e_phnum * sizeof(segments[0])))
        return false;
    for (const Elf64_Phdr *s = segments; s < segments + header.e_phnum; s++)
        if (s->p_type == PT_DYNAMIC &&
            (s->p_filesz >= sizeof(entries) || !read_at(fd, s->p_offset, entries, s->p_filesz)))
            return false;
    for (const Elf64_Dyn *e = entries; e->d_tag != DT_NULL; e++)
        if (e->d_tag == DT_STRTAB || e->d_tag == DT_GNU_HASH)
            *(e->d_tag == DT_STRTAB ? &names : &table) = file_offset(segments, header.e_phnum, e->d_un.d_ptr);
    for (const Elf64_Dyn *e = entries; e->d_tag != DT_NULL; e++)
        if (e->d_tag == DT_NEEDED && e->d_un.d_val < UINT32_MAX && names < INT64_MAX &&
            read_at(fd, names + e->d_un.d_val, needed, strlen(libuv)) && strcmp(needed, libuv) == 0)
            return false;
    return names < INT64_MAX && table < INT64_MAX && hash_table_lacks(fd, table, "uv_listen");
}

static bool find_in_list(struct torch_look *look, const char *list)
{
    static const char mark[] = "__version__ = '";
    char text[TEXT_SIZE];
    while (list != NULL) {
        list = next_part(list, look->dir);
        const int fd = look->dir[0] != '\0' ? open_in(look->dir, "torch/lib/libtorch_cpu.so") : -1;
        if (fd < 0)
            continue;
        read_text(look->dir, "torch/version.py", text);
        const char *at = strstr(text, mark);
        at = at != NULL ? at + strlen(mark) : "";
        snprintf(look->version, TORCH_VERSION_SIZE, "%.*s", (int)strcspn(at, "'\n"), at);
        look->refuses_stores = strverscmp(look->version, UV_SINCE) >= 0 && lacks_libuv(fd);
        close(fd);
        return true;
    }
    return false;
}

static bool find_in_prefix(struct torch_look *look, const char *prefix, const char *version)
{
    char list[5 * PATH_MAX];
    snprintf(list, sizeof(list),
             "%1$s/lib/python%2$s/site-packages:%1$s/lib64/python%2$s/site-packages:"
             "%1$s/local/lib/python%2$s/dist-packages:%1$s/lib/python3/dist-packages",
             prefix, version);
    return prefix[0] != '\0' && find_in_list(look, list);
}

/* Search the directories in the order of sys.path. The user's own packages count only if system packages do. */
bool torch_look(const char *python, const struct env_sources *env, struct torch_look *look)
{
    const char *home = env_sources_find(env, "HOME");
    struct interpreter i = { 0 };
    char user[2 * PATH_MAX];
    *look = (struct torch_look){ 0 };
    if (!find_python(&i, python, env))
        return false;
    snprintf(user, sizeof(user), "%s/.local/lib/python%s/site-packages", home != NULL ? home : "", i.version);
    return find_in_list(look, env_sources_find(env, "PYTHONPATH")) ||
           find_in_prefix(look, i.own, i.version) ||
           (home != NULL && i.prefix[0] != '\0' && find_in_list(look, user)) ||
           find_in_prefix(look, i.prefix, i.version);
}
