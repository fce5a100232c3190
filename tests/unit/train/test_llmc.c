/* Models of llm.c: a written model is read again, padding is skipped, and the error for a wrong header names offset
 * and value. Other programs write and read these files, so each offset is a part of the format. */
#include "numbers.h"
#include "run.h"
#include "train/models/gpt2.h"
#include "train/models/llmc.c"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "/tmp/ddp-llmc-XXXXXX", path[64];
static struct model *m;
static const struct model_kind *tiny;
static struct ddp_err err;

static void open_all(void)
{
    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/model.bin", dir);
    tiny = known_kind("gpt2:tiny");
    m = known_model("gpt2:tiny");
}

static void close_all(void)
{
    model_free(m);
    unlink(path);
    cr_expect_eq(rmdir(dir), 0);
}

TestSuite(llmc, .init = open_all, .fini = close_all);

static uint8_t *encode(void)
{
    uint8_t *file = calloc(llmc_bytes(tiny), 1);
    cr_assert_not_null(file);
    llmc_write(tiny, &m->params, m->params.values, file);
    return file;
}

static void put_number(uint8_t *file, size_t offset, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        file[offset + (size_t)i] = (uint8_t)(value >> 8 * i);
}

static void clear(void)
{
    memset(m->params.values, 0, m->params.count * sizeof(float));
}

Test(llmc, what_is_saved_is_loaded)
{
    uint64_t hash = model_hash(m);
    cr_assert_eq(llmc_save(path, tiny, &m->params, m->params.values, &err), DDP_OK, "%s", err.msg);
    clear();
    cr_assert_eq(llmc_load(path, tiny, &m->params, &err), DDP_OK, "%s", err.msg);
    cr_expect_eq(model_hash(m), hash);
}

/* The file has the bytes that llm.c's write_model would write: the header, then each kind of tensor for all blocks. */
Test(llmc, the_file_is_in_llm_cs_order)
{
    const int32_t header[8] = { 20240326, 3, 64, 256, 2, 2, 64, 256 };
    const size_t c = 64;
    uint8_t *file = encode();
    cr_expect_eq(memcmp(file, header, sizeof(header)), 0);
    const uint8_t *at = file + LLMC_HEADER + (256 + 64) * c * 4;
    cr_expect_eq(memcmp(at, m->params.each[gpt2_tensor(0, GPT2_LN1_WEIGHT)].value, c * 4), 0);
    cr_expect_eq(memcmp(at + c * 4, m->params.each[gpt2_tensor(1, GPT2_LN1_WEIGHT)].value, c * 4), 0);
    at += 4 * c * 4; /* weights and biases of two blocks */
    cr_expect_eq(memcmp(at, m->params.each[gpt2_tensor(0, GPT2_QKV_WEIGHT)].value, 3 * c * c * 4), 0);
    at = file + llmc_bytes(tiny) - c * 4;
    cr_expect_eq(memcmp(at, m->params.each[m->params.n - 1].value, c * 4), 0);
    free(file);
}

/* The files of llm.c have these sizes. The vocabulary of 50,257 is padded to 50,304. */
Test(llmc, the_sizes_are_those_of_llm_cs_files)
{
    cr_expect_eq(llmc_bytes(known_kind("gpt2:124M")), 1024 + 4 * (uint64_t)(124439808 + 47 * 768));
    cr_expect_eq(llmc_bytes(known_kind("gpt2:1558M")), 1024 + 4 * (uint64_t)(1557611200 + 47 * 1600));
}

/* The file has 64 rows of padding after the rows of the tokens. */
Test(llmc, rows_of_padding_are_passed_over)
{
    const size_t row = 64 * 4, behind_tokens = LLMC_HEADER + 256 * row, more = 64 * row;
    const uint64_t bytes = llmc_bytes(tiny);
    uint64_t hash = model_hash(m);
    struct llmc f;
    uint8_t *file = realloc(encode(), bytes + more);
    memmove(file + behind_tokens + more, file + behind_tokens, bytes - behind_tokens);
    memset(file + behind_tokens, 0x7f, more);
    put_number(file, 28, 256 + 64);
    clear();
    cr_assert_eq(llmc_check(&f, tiny, file, bytes + more, &err), DDP_OK, "%s", err.msg);
    llmc_read(&f, tiny, file + LLMC_HEADER, &m->params);
    cr_expect_eq(model_hash(m), hash);
    free(file);
}

/* Version 5 has the upper two bytes of each float32. */
Test(llmc, bfloat16_is_read_too)
{
    const uint64_t numbers = (llmc_bytes(tiny) - LLMC_HEADER) / 4;
    uint8_t *file = encode(), *to = file + LLMC_HEADER;
    float before = m->params.values[12345];
    struct llmc f;
    for (uint64_t i = 0; i < numbers; i++)
        memmove(to + 2 * i, to + 4 * i + 2, 2);
    put_number(file, 4, 5);
    clear();
    cr_assert_eq(llmc_check(&f, tiny, file, LLMC_HEADER + 2 * numbers, &err), DDP_OK, "%s", err.msg);
    llmc_read(&f, tiny, to, &m->params);
    cr_expect_float_eq(m->params.values[12345], before, 0.01f);
    cr_expect_neq(m->params.values[12345], 0);
    free(file);
}

Test(llmc, every_wrong_number_of_the_header_is_named)
{
    static const struct {
        size_t offset;
        uint32_t value;
        const char *says;
    } wrong[] = {
        { 0, 20240520, "offset 0: magic |20240520: |20240326" },
        { 4, 1, "offset 4: version 1: |expected 3" },
        { 8, 1024, "offset 8: longest" },
        { 12, 50257, "offset 12: vocabulary" },
        { 16, 0xffffffff, "offset 16: number" },
        { 20, 12, "offset 20: number" },
        { 24, 768, "offset 24: width" },
        { 28, 255, "offset 28: vocabulary |255 tokens" },
        { 28, 0x7fffffff, "offset 28: vocabulary |2147483647 tokens" },
        { 28, 384, "ends here" },
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct llmc f;
        uint8_t *file = encode();
        put_number(file, wrong[i].offset, wrong[i].value);
        cr_expect_neq(llmc_check(&f, tiny, file, llmc_bytes(tiny), &err), DDP_OK);
        cr_expect(has_parts(err.msg, wrong[i].says), "'%s' lacks '%s'", err.msg, wrong[i].says);
        free(file);
    }
}

static void expect_refused(const char *says)
{
    uint64_t hash = model_hash(m);
    cr_expect_neq(llmc_load(path, tiny, &m->params, &err), DDP_OK, "%s", says);
    cr_expect(strstr(err.msg, path) && strstr(err.msg, says), "'%s' lacks '%s'", err.msg, says);
    cr_expect_eq(model_hash(m), hash);
}

static void put(const uint8_t *file, uint64_t len)
{
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    cr_assert_eq(fwrite(file, 1, len, f), len);
    fclose(f);
}

Test(llmc, a_file_of_another_length_changes_nothing)
{
    const uint64_t bytes = llmc_bytes(tiny);
    uint8_t *file = realloc(encode(), bytes + 1);
    file[bytes] = 0;
    expect_refused("open: No such file");
    put(file, 0);
    expect_refused("offset 0: the");
    put(file, 1023);
    expect_refused("offset 1023: the");
    put(file, bytes - 1);
    expect_refused("ends here");
    put(file, bytes + 1);
    expect_refused("is longer");
    free(file);
}

Test(llmc, only_gpt2_has_such_files)
{
    cr_expect(llmc_knows(tiny));
    cr_expect_not(llmc_knows(known_kind("mlp")));
}
