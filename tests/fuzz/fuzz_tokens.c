/* Load arbitrary bytes as two files of tokens, and read every sample. Each call must succeed or return an error text.
 * The first byte determines the length of a sample, and the second byte determines the size of the vocabulary. */
#include "train/data/tokens.c"

#include "memory_file.h"

enum { MOST = 256 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void read_all(const struct tokens *t)
{
    int32_t token[MOST], target[MOST];
    for (uint64_t i = 0; i < t->n; i++) {
        struct ddp_err err = { .msg = "" };
        if (tokens_read(t, i, token, target, &err) != DDP_OK) {
            if (err.msg[0] == '\0')
                abort();
            continue;
        }
        for (size_t k = 0; k < t->length; k++) {
            if (token[k] < 0 || (size_t)token[k] >= t->vocabulary || (size_t)target[k] >= t->vocabulary)
                abort();
            if (k > 0 && token[k] != target[k - 1])
                abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct tokens t;
    struct ddp_err err = { .msg = "" };
    if (len < 2)
        return 0;
    tokens_init(&t, 1u + data[0], 1u + data[1]);
    const char *path = memory_file(data + 2, len - 2);
    if (tokens_add(&t, path, &err) == DDP_OK && tokens_add(&t, path, &err) == DDP_OK)
        read_all(&t);
    else if (err.msg[0] == '\0')
        abort();
    tokens_free(&t);
    return 0;
}
