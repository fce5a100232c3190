/* lib_open.c -- see lib_open.h. What the loader itself says is kept for the first place only: the others mostly do not
 * exist, while the first may be there and be damaged, or lack a library of its own. */
#include "cuda/lib_open.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static ddp_status refuse(const struct lib_kind *kind, const char *tried, const char *why, struct ddp_err *err)
{
    return ddp_fail(
        err, DDP_ERR_UNSUPPORTED,
        "%s was not found: tried %s (the loader says: %.200s). %s; %s=FILE names it when it is elsewhere",
        kind->what, tried, why, kind->install, kind->variable);
}

static ddp_status open_given(const struct lib_kind *kind, const char *given, void **handle,
                             struct ddp_err *err)
{
    *handle = dlopen(given, RTLD_NOW | RTLD_LOCAL);
    if (*handle != NULL)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_UNSUPPORTED, "%s: %s=%.300s cannot be loaded: %.300s", kind->what,
                    kind->variable, given, dlerror());
}

ddp_status lib_open(const struct lib_kind *kind, const char *given, size_t *place, void **handle,
                    struct ddp_err *err)
{
    char tried[400] = "", why[256] = "";
    size_t used = 0;

    if (given[0] != '\0')
        return open_given(kind, given, handle, err);
    for (; kind->places[*place] != NULL; ++*place) {
        *handle = dlopen(kind->places[*place], RTLD_NOW | RTLD_LOCAL);
        if (*handle != NULL)
            return DDP_OK;
        const char *words = dlerror();
        if (why[0] == '\0' && words != NULL)
            snprintf(why, sizeof(why), "%.250s", words);
        if (used + strlen(kind->places[*place]) + 3 < sizeof(tried))
            used += (size_t)snprintf(tried + used, sizeof(tried) - used, "%s%s", used ? ", " : "",
                                     kind->places[*place]);
    }
    return refuse(kind, tried, why, err);
}

ddp_status lib_symbols(const struct lib_kind *kind, void *handle, const struct lib_symbol *symbols, size_t n,
                       void *table, struct ddp_err *err)
{
    for (size_t i = 0; i < n; i++) {
        void *found = dlsym(handle, symbols[i].name);
        if (found == NULL && symbols[i].needed)
            return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                            "this %s has no function %s: it is too old, or another library", kind->what,
                            symbols[i].name);
        memcpy((char *)table + symbols[i].at, &found, sizeof(found));
    }
    return DDP_OK;
}
