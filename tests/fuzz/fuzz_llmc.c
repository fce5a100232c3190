/* Check any bytes as the header of a model of llm.c, for a file of any length. Either the header is rejected with an
 * error text, or the file contains everything that the header describes. */
#include "train/models/llmc.c"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static const struct model_kind *tiny(void)
{
    const struct model_kind *kind = models;
    while (strcmp(kind->name, "gpt2:tiny") != 0)
        kind++;
    return kind;
}

static void read_body(const struct llmc *f)
{
    static struct model *m;
    struct ddp_err err;
    const struct model_spec spec = { .rows = 1, .length = 1 };
    if (m == NULL && model_create(tiny(), &spec, &m, &err) != DDP_OK)
        abort();
    uint8_t *body = calloc(1, f->bytes - LLMC_HEADER);
    if (body == NULL)
        return;
    llmc_read(f, tiny(), body, &m->params);
    free(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t head[LLMC_HEADER] = { 0 };
    struct llmc f;
    struct ddp_err err = { .msg = "" };
    memcpy(head, data, len < LLMC_HEADER ? len : LLMC_HEADER);
    if (llmc_check(&f, tiny(), head, len, &err) == DDP_OK || err.msg[0] == '\0')
        abort(); /* every model is longer than the input, so llmc_check must reject the input */
    if (f.bytes != 0 && llmc_check(&f, tiny(), head, f.bytes, &err) == DDP_OK)
        read_body(&f);
    return 0;
}
