/* Which PyTorch an interpreter imports and whether it has libuv, from a made-up installation whose library is damaged. */
#include "job.h"
#include "plan/torch_look.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#define SITE "lib/python3.99/site-packages"

static char *dir;
static char python[512];
static unsigned char *bytes;
static size_t n_bytes;

static void write_file(const char *name, const void *data, size_t n)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fwrite(data, 1, n, file), n);
    fclose(file);
    chmod(path, 0755);
}

/* Python 3.99 with that torch, and in `bytes` the library that `function` is of. */
static void install(const char *version, void *function)
{
    static const char *const names[] = { "bin", "lib",         "lib/python3.99",
                                         SITE,  SITE "/torch", SITE "/torch/lib" };
    char text[128];
    Dl_info where;
    dir = job_dir();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(python, sizeof(python), "%s/%s", dir, names[i]);
        cr_assert_eq(mkdir(python, 0755), 0, "%s", python);
    }
    snprintf(python, sizeof(python), "%s/bin/python3.99", dir);
    write_file("bin/python3.99", "", 0);
    snprintf(text, sizeof(text), "__version__ = '%s'\n", version);
    write_file(SITE "/torch/version.py", text, strlen(text));
    cr_assert_neq(dladdr(function, &where), 0);
    FILE *file = fopen(where.dli_fname, "rb");
    cr_assert_not_null(file, "%s", where.dli_fname);
    bytes = malloc(16 << 20);
    n_bytes = fread(bytes, 1, 16 << 20, file);
    fclose(file);
}

static void tear_down(void)
{
    free(bytes);
    if (dir != NULL)
        job_dir_remove(dir);
}

TestSuite(torch_look, .fini = tear_down);

/* With a library of the first `n` of the bytes. */
static bool refuses(size_t n)
{
    static struct torch_look look;
    static char *none[] = { NULL };
    const struct env_sources env = { NULL, 0, none };
    write_file(SITE "/torch/lib/libtorch_cpu.so", bytes, n);
    cr_assert(torch_look(python, &env, &look));
    return look.refuses_stores;
}

static Elf64_Dyn *dynamic_entry(int64_t tag)
{
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)bytes;
    const Elf64_Phdr *segment = (const Elf64_Phdr *)(bytes + header->e_phoff);
    while (segment->p_type != PT_DYNAMIC)
        segment++;
    Elf64_Dyn *entry = (Elf64_Dyn *)(bytes + segment->p_offset);
    while (entry->d_tag != tag)
        entry++;
    return entry;
}

Test(torch_look, a_library_that_defines_uv_listen_has_libuv)
{
    install("2.6.0", (void *)uv_listen);
    cr_expect_not(refuses(n_bytes));
}

Test(torch_look, a_library_without_it_refuses)
{
    install("2.10.1+debian", (void *)cJSON_Parse);
    cr_expect(refuses(n_bytes));
}

Test(torch_look, before_2_4_no_client_asks)
{
    install("2.3.1", (void *)cJSON_Parse);
    cr_expect_not(refuses(n_bytes));
}

Test(torch_look, a_library_without_its_tables_gets_the_usual_answer)
{
    static const int64_t tables[] = { DT_STRTAB, DT_GNU_HASH };
    install("2.6.0", (void *)cJSON_Parse);
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        Elf64_Dyn *entry = dynamic_entry(tables[i]);
        const Elf64_Dyn was = *entry;
        entry->d_tag = DT_DEBUG;
        cr_expect_not(refuses(n_bytes), "table %zu is not named", i);
        *entry = was;
        entry->d_un.d_ptr = UINT64_MAX;
        cr_expect_not(refuses(n_bytes), "table %zu is nowhere", i);
        *entry = was;
    }
    cr_expect(refuses(n_bytes));
}

/* Cut anywhere, or with any of its first bytes changed, it gets an answer. */
Test(torch_look, survives_damage)
{
    install("2.6.0", (void *)cJSON_Parse);
    cr_expect_not(refuses(0));
    for (size_t n = 1; n < n_bytes; n += 997)
        refuses(n);
    for (size_t i = 0; i < 512; i++) {
        bytes[i] ^= 0xff;
        refuses(n_bytes);
        bytes[i] ^= 0xff;
    }
    cr_expect(refuses(n_bytes));
}
