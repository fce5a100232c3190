/* version.c -- see version.h. Pure: all values are known when the file is compiled. */
#include "base/version.h"

#include "ddp/context.h"

#include <string.h> /* defines __GLIBC__ where the C library is glibc */

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)

/* The C library whose headers were used for the build. A program runs with this version and all newer versions. */
#if defined(__GLIBC__)
#define LIBC "glibc " TEXT(__GLIBC__) "." TEXT(__GLIBC_MINOR__)
#else
#define LIBC "musl" /* musl defines no macro for itself, and ddprun supports no third C library */
#endif

#if defined(__x86_64__)
#define ARCHITECTURE "x86_64"
#elif defined(__aarch64__)
#define ARCHITECTURE "aarch64"
#elif defined(__riscv)
#define ARCHITECTURE "riscv64"
#elif defined(__powerpc64__)
#define ARCHITECTURE "ppc64le"
#else
#define ARCHITECTURE "unknown"
#endif

bool version_print(struct buf *out, const char *program, const char *commit, bool json)
{
    if (json)
        return buf_printf(out,
                          "{\"name\":\"%s\",\"version\":\"" DDP_VERSION "\",\"commit\":\"%s\","
                          "\"architecture\":\"" ARCHITECTURE "\",\"libc\":\"" LIBC "\"}\n",
                          program, commit);
    return buf_printf(out, "%s " DDP_VERSION " (commit %s, " ARCHITECTURE ", " LIBC ")\n", program, commit);
}

/* Return the length of "0.1" in "0.1.7". */
static size_t series_length(const char *version)
{
    const char *dot = strchr(version, '.');
    return dot == NULL ? strlen(version) : (size_t)(dot - version) + 1 + strspn(dot + 1, "0123456789");
}

bool version_matches(const char *a, const char *b)
{
    const size_t len = series_length(a);
    return series_length(b) == len && memcmp(a, b, len) == 0;
}
