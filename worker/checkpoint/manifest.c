/* manifest.c -- see manifest.h. The reader verifies the checksum first, because the checksum detects all damage. The
 * later checks are for files that another program or a later version of this program has written. */
#include "checkpoint/manifest.h"

#include "core/crc32c.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* VERSION: the version of the format. DIGITS: the number of hexadecimal digits of a CRC-32C. */
enum { VERSION = 1, DIGITS = 8 };

/* The beginning of every manifest. The checksum's digits follow at once, so their place is known before the text is
 * parsed. */
static const char prefix[] = "{\"crc32c\":\"";
static const char format[] = "ddprun checkpoint";

/* One row for each member of ddp_ckpt_point: its key in the JSON, and its offset in the struct. All members are
 * numbers. */
static const struct {
    const char *key;
    size_t offset;
} point_rows[] = {
#define X(name, words) { #name, offsetof(ddp_ckpt_point, name) },
    DDP_CKPT_POINT_LIST(X)
#undef X
};

enum { POINT_ROWS = sizeof(point_rows) / sizeof(point_rows[0]) };

/* Format a checksum. The digits are lower case. */
static void hex(char digits[DIGITS + 1], uint32_t crc)
{
    snprintf(digits, DIGITS + 1, "%08" PRIx32, crc);
}

/* Return the checksum of the text, with zeros in place of the checksum's own digits. */
static uint32_t text_crc(const char *text, size_t len)
{
    const size_t at = sizeof(prefix) - 1;
    uint32_t crc = crc32c(0, text, at);
    crc = crc32c(crc, "00000000", DIGITS);
    return crc32c(crc, text + at + DIGITS, len - at - DIGITS);
}

/* --- writing -------------------------------------------------------------------------------------------- */

/* Add the list of blocks. Return false if memory is short. */
static bool add_blocks(cJSON *json, const struct manifest *m)
{
    char digits[DIGITS + 1];
    cJSON *list = cJSON_AddArrayToObject(json, "blocks");
    for (size_t i = 0; i < m->n && list != NULL; i++) {
        cJSON *row = cJSON_CreateObject();
        hex(digits, m->blocks[i].crc);
        if (!cJSON_AddItemToArray(list, row) || !cJSON_AddStringToObject(row, "name", m->blocks[i].name) ||
            !cJSON_AddNumberToObject(row, "bytes", (double)m->blocks[i].bytes) ||
            !cJSON_AddStringToObject(row, "crc32c", digits))
            return false;
    }
    return list != NULL;
}

/* Add all members. The checksum must be the first member, so that its place in the text is known. */
static bool add_members(cJSON *json, const struct manifest *m)
{
    bool ok = cJSON_AddStringToObject(json, "crc32c", "00000000") != NULL &&
              cJSON_AddStringToObject(json, "format", format) != NULL &&
              cJSON_AddNumberToObject(json, "version", VERSION) != NULL &&
              cJSON_AddStringToObject(json, "byte_order", "little") != NULL;
    for (int i = 0; i < POINT_ROWS && ok; i++) {
        const uint64_t value = *(const uint64_t *)((const char *)&m->point + point_rows[i].offset);
        ok = cJSON_AddNumberToObject(json, point_rows[i].key, (double)value) != NULL;
    }
    return ok && cJSON_AddStringToObject(json, "file", MANIFEST_FILE) != NULL &&
           cJSON_AddNumberToObject(json, "bytes", (double)m->bytes) != NULL && add_blocks(json, m);
}

/* Return the manifest's text. The checksum covers the whole text, with zeros in place of the checksum's digits. So
 * write the digits last. */
char *manifest_write(const struct manifest *m)
{
    cJSON *json = cJSON_CreateObject();
    char *text = json != NULL && add_members(json, m) ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    if (text == NULL)
        return NULL;
    char digits[DIGITS + 1];
    hex(digits, text_crc(text, strlen(text)));
    memcpy(text + sizeof(prefix) - 1, digits, DIGITS);
    return text;
}

/* --- reading -------------------------------------------------------------------------------------------- */

static ddp_status damaged(struct ddp_err *err, const char *name, const char *what)
{
    return ddp_fail(err, DDP_ERR_CORRUPT, "%s: %s", name, what);
}

/* Check the text's checksum. Compare the digits as text, so that a flipped bit that turns "a" into "A" is detected,
 * too. */
static ddp_status check_text(const char *name, const char *text, size_t len, struct ddp_err *err)
{
    const size_t at = sizeof(prefix) - 1;
    char digits[DIGITS + 1];
    if (len < at + DIGITS || memcmp(text, prefix, at) != 0)
        return damaged(err, name, "not a manifest: no CRC-32C at the beginning");
    hex(digits, text_crc(text, len));
    if (memcmp(text + at, digits, DIGITS) != 0)
        return damaged(err, name, "the text does not match its CRC-32C");
    return DDP_OK;
}

/* Read a whole number from 0 to MANIFEST_LARGEST. A double holds each of these numbers exactly. Return false for
 * anything else. */
static bool get_number(const cJSON *json, const char *key, uint64_t *to)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) || item->valuedouble > (double)MANIFEST_LARGEST ||
        floor(item->valuedouble) != item->valuedouble)
        return false;
    *to = (uint64_t)item->valuedouble;
    return true;
}

/* Return a member's text, or "" if the member is missing, so that the caller can compare the result. */
static const char *get_text(const cJSON *json, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, key));
    return text != NULL ? text : "";
}

/* Read one row. Lengths are checked before the name is copied. Accept only the digits that hex() prints. strtoul
 * alone would also accept blanks, a sign or "0x". */
static bool read_block(const cJSON *row, struct manifest_block *block)
{
    const char *name = get_text(row, "name"), *crc = get_text(row, "crc32c");
    if (name[0] == '\0' || strlen(name) >= MANIFEST_NAME || strlen(crc) != DIGITS ||
        strspn(crc, "0123456789abcdef") != DIGITS || !get_number(row, "bytes", &block->bytes))
        return false;
    memcpy(block->name, name, strlen(name) + 1);
    block->crc = (uint32_t)strtoul(crc, NULL, 16);
    return true;
}

/* Read all rows. Follow the linked list, because cJSON_GetArrayItem starts at the first row in each call. A block's
 * offset is the sum of the sizes of the earlier blocks. */
static ddp_status read_blocks(struct manifest *m, const cJSON *list, const char *name, struct ddp_err *err)
{
    uint64_t at = 0;
    const int n = cJSON_GetArraySize(list);
    if (n < 1 || n > MANIFEST_BLOCKS)
        return ddp_fail(err, DDP_ERR_CORRUPT, "%s: %d blocks: expected a number from 1 to %d", name, n,
                        MANIFEST_BLOCKS);
    m->blocks = calloc((size_t)n, sizeof(*m->blocks));
    if (m->blocks == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "%s: out of memory for %d blocks", name, n);
    for (const cJSON *row = list->child; row != NULL; row = row->next) {
        struct manifest_block *block = &m->blocks[m->n++];
        block->at = at;
        if (!read_block(row, block) || block->bytes > MANIFEST_LARGEST - at)
            return ddp_fail(err, DDP_ERR_CORRUPT, "%s: block %zu has no valid name, size or checksum", name,
                            m->n);
        at += block->bytes;
    }
    return at == m->bytes ? DDP_OK
                          : damaged(err, name, "the sum of the blocks' sizes is not the file's size");
}

/* Read the members. Format and version come first, because another version may have other members. */
static ddp_status read_json(struct manifest *m, const cJSON *json, const char *name, struct ddp_err *err)
{
    uint64_t version;
    if (strcmp(get_text(json, "format"), format) != 0 || !get_number(json, "version", &version))
        return damaged(err, name, "not the manifest of a checkpoint");
    if (version != VERSION)
        return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                        "%s: version %" PRIu64 " is not supported; this library reads version %d", name,
                        version, VERSION);
    if (strcmp(get_text(json, "byte_order"), "little") != 0 ||
        strcmp(get_text(json, "file"), MANIFEST_FILE) != 0)
        return damaged(err, name,
                       "\"byte_order\" must be \"little\", and \"file\" must be \"" MANIFEST_FILE "\"");
    for (int i = 0; i < POINT_ROWS; i++) {
        if (!get_number(json, point_rows[i].key, (uint64_t *)((char *)&m->point + point_rows[i].offset)))
            return ddp_fail(err, DDP_ERR_CORRUPT, "%s: \"%s\" is not a valid number", name,
                            point_rows[i].key);
    }
    if (!get_number(json, "bytes", &m->bytes))
        return damaged(err, name, "\"bytes\" is not a valid number");
    return read_blocks(m, cJSON_GetObjectItemCaseSensitive(json, "blocks"), name, err);
}

ddp_status manifest_read(struct manifest *m, const char *name, const char *text, size_t len,
                         struct ddp_err *err)
{
    *m = (struct manifest){ .blocks = NULL };
    ddp_status status = check_text(name, text, len, err);
    if (status != DDP_OK)
        return status;
    cJSON *json = cJSON_ParseWithLength(text, len);
    status = json != NULL ? read_json(m, json, name, err) : damaged(err, name, "not JSON");
    cJSON_Delete(json);
    if (status != DDP_OK)
        manifest_free(m);
    return status;
}

void manifest_free(struct manifest *m)
{
    free(m->blocks);
    *m = (struct manifest){ .blocks = NULL };
}

/* --- the caller's blocks -------------------------------------------------------------------------------- */

/* Return the block named `block`, or NULL. Try position `guess` first, because the order is usually the same. */
static const struct manifest_block *find_block(const struct manifest *m, const char *block, size_t guess)
{
    if (guess < m->n && strcmp(m->blocks[guess].name, block) == 0)
        return &m->blocks[guess];
    for (size_t i = 0; i < m->n; i++) {
        if (strcmp(m->blocks[i].name, block) == 0)
            return &m->blocks[i];
    }
    return NULL;
}

#define SAME_RUN "; use the model and optimizer of the run that saved the checkpoint"

/* Match the caller's blocks with the manifest. The number of blocks is compared last, because "has no block 'x'" is
 * clearer than "has 5 blocks". */
ddp_status manifest_match(const struct manifest *m, const char *name, const ddp_ckpt_block *want, size_t n,
                          size_t *number, struct ddp_err *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct manifest_block *block = find_block(m, want[i].name, i);
        if (block == NULL)
            return ddp_fail(err, DDP_ERR_MISMATCH, "%s: the checkpoint has no block '%s'" SAME_RUN, name,
                            want[i].name);
        if (block->bytes != want[i].bytes)
            return ddp_fail(err, DDP_ERR_MISMATCH,
                            "%s: block '%s' has %" PRIu64 " bytes, but the program expects %zu" SAME_RUN,
                            name, want[i].name, block->bytes, want[i].bytes);
        number[i] = (size_t)(block - m->blocks);
    }
    if (m->n != n)
        return ddp_fail(err, DDP_ERR_MISMATCH,
                        "%s: the checkpoint has %zu blocks, but the program expects %zu" SAME_RUN, name, m->n,
                        n);
    return DDP_OK;
}
