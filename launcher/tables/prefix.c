/* prefix.c -- see prefix.h.
 *
 *     "${time} [$rank] "   ->   field TIME, " [", field RANK, "] "
 *
 * An unknown field is rejected. torchrun prints an unknown field as text, so a typing error appears in every
 * line. Times are UTC, so that the lines of several hosts can be sorted. */
#include "tables/prefix.h"

#include "base/events.h"
#include "base/options.h"
#include "tables/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char *const names[PREFIX_FIELD_COUNT] = {
#define X(id, name, meaning) name,
    PREFIX_FIELDS(X)
#undef X
};

/* --- the template --------------------------------------------------------------------------------------- */

/* Reject a template, with all field names in the error. */
static ddp_status prefix_refuse(struct ddp_err *err, const char *what, const char *name, size_t len)
{
    char all[256] = "";
    for (int i = 0; i < PREFIX_FIELD_COUNT; i++)
        options_list_add(all, sizeof(all), i + 1 == PREFIX_FIELD_COUNT, "'%s'", names[i]);
    return ddp_fail(err, DDP_ERR_ARG, "%s '%.*s'; write a field as ${NAME}, where NAME is %s", what,
                    len < 64 ? (int)len : 64, name, all);
}

static ddp_status add_piece(struct prefix *p, struct prefix_piece piece, struct ddp_err *err)
{
    if (p->n == PREFIX_PIECES_MAX)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "more than %d parts; each field ${NAME} is a part, and each text between two fields is a part",
            PREFIX_PIECES_MAX);
    p->pieces[p->n++] = piece;
    return DDP_OK;
}

static ddp_status prefix_add_text(struct prefix *p, const char *text, size_t len, struct ddp_err *err)
{
    if (len == 0)
        return DDP_OK;
    return add_piece(p, (struct prefix_piece){ .text = text, .len = len }, err);
}

/* Append a field to the prefix. Return DDP_ERR_ARG for an unknown name. */
static ddp_status add_field(struct prefix *p, const char *name, size_t len, struct ddp_err *err)
{
    for (int i = 0; i < PREFIX_FIELD_COUNT; i++) {
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0) {
            p->timed |= i == PREFIX_TIME || i == PREFIX_ELAPSED;
            p->ranked |= i == PREFIX_RANK || i == PREFIX_LOCAL_RANK;
            return add_piece(p, (struct prefix_piece){ .field = (enum prefix_field)i }, err);
        }
    }
    return prefix_refuse(err, "unknown field", name, len);
}

/* Return the length of the name at `p`, or 0 if no name begins there. A name does not begin with a digit, so "$5"
 * is text. */
static size_t name_length(const char *p)
{
    size_t n = 0;
    while (isalnum((unsigned char)p[n]) || p[n] == '_')
        n++;
    return isdigit((unsigned char)p[0]) ? 0 : n;
}

/* Parse the field at *at, which begins with a dollar sign, and move *at to the end of the field. "$$" is one
 * dollar. A dollar sign before other characters is text. */
static ddp_status add_dollar(struct prefix *p, const char **at, struct ddp_err *err)
{
    const char *dollar = *at;
    const char *name = dollar + (dollar[1] == '{' ? 2 : 1);
    size_t len = name_length(name);
    if (dollar[1] == '{' && name[len] != '}')
        return prefix_refuse(err, "missing closing brace in", dollar, strlen(dollar));
    *at = name + len + (dollar[1] == '{');
    if (dollar[1] == '{' || len > 0)
        return add_field(p, name, len, err);
    if (dollar[1] == '$')
        (*at)++;
    return prefix_add_text(p, dollar, 1, err);
}

/* Return true if the template has a control character. A newline would break every line in two, and an escape
 * sequence could change settings of the terminal. */
static bool has_control(const char *text)
{
    for (; *text != '\0'; text++)
        if (((unsigned char)*text < ' ' && *text != '\t') || *text == 0x7f)
            return true;
    return false;
}

ddp_status prefix_add(struct prefix *p, const char *template, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    if (has_control(template))
        return ddp_fail(err, DDP_ERR_ARG,
                        "control characters are not allowed; a prefix must be printable text");
    while (*template != '\0' && status == DDP_OK) {
        size_t text = strcspn(template, "$");
        status = prefix_add_text(p, template, text, err);
        template += text;
        if (*template == '$' && status == DDP_OK)
            status = add_dollar(p, &template, err);
    }
    return status;
}

/* --- the prefix ----------------------------------------------------------------------------------------- */

/* Append the value of a field. Control characters are replaced, because a host name may contain any byte. */
static bool append_value(struct buf *out, const char *value)
{
    size_t begin = out->len;
    if (value == NULL)
        value = "-";
    if (!buf_append(out, value, strlen(value)))
        return false;
    for (size_t i = begin; i < out->len; i++)
        if (out->data[i] < ' ' || out->data[i] == 0x7f)
            out->data[i] = '?';
    return true;
}

static bool append_pieces(const struct prefix *p, const struct prefix_values *values, struct buf *out)
{
    bool ok = true;
    for (size_t i = 0; i < p->n && ok; i++) {
        const struct prefix_piece *piece = &p->pieces[i];
        ok = piece->text != NULL ? buf_append(out, piece->text, piece->len)
                                 : append_value(out, values->of[piece->field]);
    }
    return ok;
}

/* Append the prefix. The colour ends before the blanks at the end of the prefix. */
bool prefix_render(const struct prefix *p, const struct prefix_values *values, int colour, struct buf *out)
{
    size_t begin = out->len, blanks = 0;
    if (p->n == 0)
        return true;
    if (colour == PREFIX_NO_COLOUR)
        return append_pieces(p, values, out);
    bool ok = buf_printf(out, "\033[%dm", colour) && append_pieces(p, values, out);
    while (ok && out->len > begin && out->data[out->len - 1] == ' ') {
        out->len--;
        blanks++;
    }
    return ok && buf_printf(out, COLOUR_OFF "%*s", (int)blanks, "");
}

int prefix_colour(int rank)
{
    /* These colours are readable on dark and on light backgrounds. Red is missing, because red is reserved for
     * errors. */
    static const int colours[] = { 36, 32, 33, 35, 34, 96, 92, 95 };
    enum { COLOURS = sizeof(colours) / sizeof(colours[0]) };
    return colours[(unsigned)rank % COLOURS];
}

/* --- time ----------------------------------------------------------------------------------------------- */

void prefix_time(char out[PREFIX_TIME_MAX], uint64_t unix_us)
{
    event_time(out, unix_us);
}

void prefix_elapsed(char out[PREFIX_TIME_MAX], uint64_t us)
{
    snprintf(out, PREFIX_TIME_MAX, "%llu.%06d", (unsigned long long)(us / 1000000), (int)(us % 1000000));
}
