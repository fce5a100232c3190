/* journal.c -- see journal.h.
 *
 * Lines are printed to stdout. The progress bar is printed only to a terminal (train's own, or ddprun's), so a log
 * file never contains a bar. A number that is not finite becomes null, because JSON has only finite numbers. */
#include "train/journal.h"

#include "ddp/ckpt.h"
#include "train/files.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Columns: the driver's name for a GPU (* matches any ending), TFLOP/s in 16 bits, TFLOP/s in float32. The numbers are
 * from NVIDIA's documents; a comment at each row names the document. If a document has only a number "with sparsity",
 * the table has half of that number. */
static const struct row {
    const char *name;
    double narrow, is_float;
} rows[] = {
    /* NVIDIA A100 Tensor Core GPU, datasheet (2021): BFLOAT16 312, FP32 19.5, the same for PCIe and SXM */
    { "NVIDIA A100-*", 312, 19.5 },
    { "NVIDIA A100 80GB PCIe", 312, 19.5 },
    /* NVIDIA A10, datasheet (2021): BFLOAT16 125, FP32 31.2 */
    { "NVIDIA A10", 125, 31.2 },
    /* NVIDIA A30, datasheet (2021): BFLOAT16 165, FP32 10.3 */
    { "NVIDIA A30", 165, 10.3 },
    /* NVIDIA A40, datasheet (2021): BFLOAT16 149.7, FP32 37.4 */
    { "NVIDIA A40", 149.7, 37.4 },
    /* NVIDIA H100 Tensor Core GPU Architecture, white paper (2023), tables 2 and 3: SXM5: BF16 989.4, FP32
     * 66.9; PCIe: BF16 756, FP32 51.2 */
    { "NVIDIA H100 80GB HBM3", 989.4, 66.9 },
    { "NVIDIA H100 PCIe", 756, 51.2 },
    /* NVIDIA H100 NVL, datasheet (2024): BFLOAT16 1,671 with sparsity (the row has half of it), FP32 60 */
    { "NVIDIA H100 NVL", 835.5, 60 },
    /* NVIDIA H200 Tensor Core GPU, datasheet (2024): SXM: BFLOAT16 1,979 with sparsity, FP32 67; NVL: BFLOAT16 1,671
     * with sparsity, FP32 60. The datasheet rounds the numbers of SXM. So the row "NVIDIA H200" (SXM) has the exact
     * numbers of the H100 SXM, which has the same chip. */
    { "NVIDIA H200", 989.4, 66.9 },
    { "NVIDIA H200 NVL", 835.5, 60 },
    /* NVIDIA L4, datasheet (2023): BFLOAT16 242 with sparsity, FP32 30.3 */
    { "NVIDIA L4", 121, 30.3 },
    /* NVIDIA L40S, datasheet (2023): BFLOAT16 362.05, FP32 91.6 */
    { "NVIDIA L40S", 362.05, 91.6 },
    /* NVIDIA Ada GPU Architecture, white paper (2022), appendix A: BF16 with FP32 accumulate 165.2, FP32 82.6 */
    { "NVIDIA GeForce RTX 4090", 165.2, 82.6 },
    /* NVIDIA Ampere GA102 GPU Architecture, white paper (2021), appendix A: BF16 with FP32 accumulate 71, FP32 35.6 */
    { "NVIDIA GeForce RTX 3090", 71, 35.6 },
    /* NVIDIA Blackwell Architecture, technical brief (2024), HGX B200: BF16 4,500 with sparsity (the row has half of
     * it), FP32 80 */
    { "NVIDIA B200", 2250, 80 },
};

static bool is_named(const char *row, const char *name)
{
    const size_t n = strlen(row);
    return row[n - 1] == '*' ? strncmp(row, name, n - 1) == 0 : strcmp(row, name) == 0;
}

double peaks_tflops(const char *name, bool is_float)
{
    if (strstr(name, " MIG ") != NULL)
        return 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (is_named(rows[i].name, name))
            return is_float ? rows[i].is_float : rows[i].narrow;
    }
    return 0;
}

enum { BAR_CELLS = 30 }; /* bar and numbers fit into 80 columns */

/* Return the stream for the progress bar, or NULL if no bar is drawn. Use stdout if it is a terminal, because the lines
 * of the journal are printed to stdout. Bar and lines then keep their order. */
static FILE *bar_stream(void)
{
    if (isatty(STDOUT_FILENO))
        return stdout;
    return isatty(STDERR_FILENO) || getenv("DDPRUN_TERMINAL") != NULL ? stderr : NULL;
}

/* Open the journal. Open the file with "e" (close-on-exec), so that a process that a library starts does not inherit
 * the file. */
ddp_status journal_open(struct journal *r, bool speak, bool quiet, const char *metrics, bool append,
                        struct ddp_err *err)
{
    *r = (struct journal){ .lines = speak && !quiet, .bar_shown = -1, .metrics_path = metrics };
    r->bar = r->lines ? bar_stream() : NULL;
    if (!speak || metrics == NULL)
        return DDP_OK;
    r->metrics = files_open("--metrics", metrics, append ? "ae" : "we", err);
    return r->metrics != NULL ? DDP_OK : err->code;
}

ddp_status journal_close(struct journal *r, struct ddp_err *err)
{
    FILE *metrics = r->metrics;
    r->metrics = NULL;
    if (metrics != NULL && fclose(metrics) != 0)
        return files_not_written("--metrics", r->metrics_path, err);
    return r->print_error.code == DDP_OK ? DDP_OK
                                         : ddp_fail(err, r->print_error.code, "%s", r->print_error.msg);
}

/* --- for users --------------------------------------------------------------------------------------- */

/* Erase the bar, from the first column to the end of the line. The final \r shows ddprun that the bar is empty. */
static void wipe_bar(struct journal *r)
{
    if (r->bar_shown >= 0)
        fputs("\033[K\r", r->bar);
    r->bar_shown = -1;
}

/* Print a line. Keep an error for journal_close, because the training can continue. */
void journal_line(struct journal *r, const char *fmt, ...)
{
    if (!r->lines)
        return;
    va_list ap;
    wipe_bar(r);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    if (r->print_error.code == DDP_OK)
        files_flush_stdout(&r->print_error);
}

/* Draw the bar, at most once per percent, because a terminal is slow and a step may take only a millisecond. */
void journal_progress(struct journal *r, uint64_t epoch, uint64_t epochs, uint64_t done, uint64_t total)
{
    char cells[BAR_CELLS + 1];
    int mille = (int)(done * 1000 / total);
    if (r->bar == NULL || mille / 10 == r->bar_shown / 10)
        return;
    int filled = mille * BAR_CELLS / 1000;
    memset(cells, '#', (size_t)filled);
    memset(cells + filled, '.', (size_t)(BAR_CELLS - filled));
    cells[BAR_CELLS] = '\0';
    fprintf(r->bar, "epoch %" PRIu64 "/%" PRIu64 " [%s] %" PRIu64 "/%" PRIu64 "\r", epoch, epochs, cells,
            done, total);
    fflush(r->bar);
    r->bar_shown = mille;
}

/* --- for programs ------------------------------------------------------------------------------------ */

ddp_status journal_metrics(struct journal *r, cJSON *json, struct ddp_err *err)
{
    char *text = r->metrics != NULL ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    if (r->metrics == NULL)
        return DDP_OK;
    if (text == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for a line of metrics");
    /* Flush each line, so that a reader finds whole lines, even after a crash. */
    bool failed = fprintf(r->metrics, "%s\n", text) < 0 || fflush(r->metrics) != 0;
    free(text);
    return failed ? files_not_written("--metrics", r->metrics_path, err) : DDP_OK;
}

ddp_status journal_summary(const char *path, cJSON *json, struct ddp_err *err)
{
    char *text = cJSON_Print(json);
    cJSON_Delete(json);
    if (text == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "--summary %s: out of memory", path);
    size_t len = strlen(text);
    text[len] = '\n'; /* replaces the NUL, because a text file ends with a newline */
    ddp_status status = ddp_file_replace(path, text, len + 1, err);
    free(text);
    return status == DDP_OK ? DDP_OK : files_wrap_option("--summary", err);
}
