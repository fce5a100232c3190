/* Parses any text as the manifest of a checkpoint. The result is a sound manifest, or an error with a text. The
 * checksum is corrected first, because otherwise every input would be rejected for its checksum. */
#include "core/crc32c.h"
#include "checkpoint/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static const char prefix[] = "{\"crc32c\":\"00000000";
enum { HEAD = sizeof(prefix) - 1, DIGITS = 8 };

/* Check that a parsed manifest is sound: terminated names, adjacent blocks. */
static void look(const struct manifest *m)
{
    uint64_t at = 0;
    for (size_t i = 0; i < m->n; i++) {
        if (m->blocks[i].at != at || memchr(m->blocks[i].name, '\0', MANIFEST_NAME) == NULL)
            abort();
        at += m->blocks[i].bytes;
    }
    if (at != m->bytes)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct manifest m;
    struct ddp_err err = { .msg = "" };
    char *text = malloc(HEAD + len + 1), digits[DIGITS + 1];
    if (text == NULL)
        abort();
    memcpy(text, prefix, HEAD);
    memcpy(text + HEAD, data, len);
    snprintf(digits, sizeof(digits), "%08x", crc32c(0, text, HEAD + len));
    memcpy(text + HEAD - DIGITS, digits, DIGITS);
    ddp_status status = manifest_read(&m, "fuzz", text, HEAD + len, &err);
    if (status == DDP_OK)
        look(&m);
    else if (err.msg[0] == '\0')
        abort();
    if (status == DDP_OK)
        manifest_free(&m);
    free(text);
    return 0;
}
