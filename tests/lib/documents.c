/* documents.c -- see documents.h.
 *
 * A schema with an unknown keyword fails the test, because a schema must not promise more than the test checks. */
#include "documents.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

cJSON *schema_of_events(void)
{
    char text[32768];
    FILE *file = fopen("launcher/events.schema.json", "r");
    if (file == NULL)
        cr_skip_test("skipped, because the test does not run in the top folder of the sources");
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    return cJSON_Parse(text);
}

static bool complain(char *why, size_t size, const cJSON *value, const char *what, const char *detail)
{
    snprintf(why, size, "%s: %s %s", value != NULL && value->string != NULL ? value->string : "(item)", what,
             detail);
    return false;
}

static bool is_type(const cJSON *value, const char *type)
{
    if (strcmp(type, "integer") == 0)
        return cJSON_IsNumber(value) && value->valuedouble == (double)(long long)value->valuedouble;
    if (strcmp(type, "number") == 0)
        return cJSON_IsNumber(value);
    if (strcmp(type, "string") == 0)
        return cJSON_IsString(value);
    if (strcmp(type, "boolean") == 0)
        return cJSON_IsBool(value);
    if (strcmp(type, "null") == 0)
        return cJSON_IsNull(value);
    return strcmp(type, "array") == 0 ? cJSON_IsArray(value)
                                      : strcmp(type, "object") == 0 && cJSON_IsObject(value);
}

static bool fits_type(const cJSON *types, const cJSON *value)
{
    const cJSON *type;
    if (cJSON_IsString(types))
        return is_type(value, types->valuestring);
    cJSON_ArrayForEach(type, types) if (is_type(value, type->valuestring)) return true;
    return false;
}

static bool is_one_of(const cJSON *list, const cJSON *value)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, list) if (cJSON_Compare(one, value, true)) return true;
    return false;
}

static bool members_fit(const cJSON *schema, const cJSON *value, char *why, size_t size)
{
    const cJSON *properties = cJSON_GetObjectItem(schema, "properties"), *name, *member;
    cJSON_ArrayForEach(name, cJSON_GetObjectItem(schema, "required"))
    {
        if (cJSON_GetObjectItemCaseSensitive(value, name->valuestring) == NULL)
            return complain(why, size, value, "lacks", name->valuestring);
    }
    cJSON_ArrayForEach(member, value)
    {
        const cJSON *inner = cJSON_GetObjectItemCaseSensitive(properties, member->string);
        if (inner == NULL)
            return complain(why, size, value, "has the unknown member", member->string);
        if (!schema_fits(inner, member, why, size))
            return false;
    }
    return true;
}

static bool items_fit(const cJSON *schema, const cJSON *value, char *why, size_t size)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, value) if (!schema_fits(schema, item, why, size)) return false;
    return true;
}

static bool word_fits(const cJSON *schema, const cJSON *word, const cJSON *value, char *why, size_t size)
{
    static const char ignored[] = " $schema title description additionalProperties required ";
    const char *name = word->string;
    char padded[64];
    snprintf(padded, sizeof(padded), " %s ", name);
    if (strstr(ignored, padded) != NULL) /* members_fit checks "required" and "additionalProperties" */
        return true;
    if (strcmp(name, "type") == 0)
        return fits_type(word, value) ||
               complain(why, size, value, "is not of type", "that the schema names");
    if (strcmp(name, "const") == 0)
        return cJSON_Compare(word, value, true) || complain(why, size, value, "is not the", "constant");
    if (strcmp(name, "enum") == 0)
        return is_one_of(word, value) || complain(why, size, value, "is none of", "the allowed values");
    if (strcmp(name, "properties") == 0)
        return !cJSON_IsObject(value) || members_fit(schema, value, why, size);
    if (strcmp(name, "items") == 0)
        return !cJSON_IsArray(value) || items_fit(word, value, why, size);
    return complain(why, size, value, "has in its schema the unknown word", name);
}

bool schema_fits(const cJSON *schema, const cJSON *value, char *why, size_t size)
{
    const cJSON *word;
    cJSON_ArrayForEach(word, schema) if (!word_fits(schema, word, value, why, size)) return false;
    return true;
}

/* --- environment ------------------------------------------------------------------------------------------ */

static void read_line(struct environment *e, char *line, size_t *n)
{
    const size_t used = strlen(e->file);
    if (strncmp(line, "#host ", 6) == 0)
        e->host = line + 6;
    else if (strncmp(line, "#file ", 6) == 0)
        snprintf(e->file + used, sizeof(e->file) - used, "%s\n", line + 6);
    else if (line[0] != '#' && line[0] != '\0' && *n < ENVIRONMENT_VARIABLES_MAX)
        e->block[(*n)++] = line;
}

void environment_read(struct environment *e, const char *name)
{
    char path[256];
    size_t n = 0;
    memset(e, 0, sizeof(*e));
    snprintf(path, sizeof(path), "tests/data/environments/%s.env", name);
    FILE *f = fopen(path, "r");
    cr_assert(f != NULL, "no file %s", path);
    e->text[fread(e->text, 1, sizeof(e->text) - 1, f)] = '\0';
    fclose(f);
    for (char *at = strtok(e->text, "\n"); at != NULL; at = strtok(NULL, "\n"))
        read_line(e, at, &n);
    cr_assert(e->host != NULL, "%s names no host", path);
}
