/* Parse any command line and environment. Words are separated by NUL, and an empty word ends the environment. An
 * accepted command line must also make a plan that can be printed. */
#include "command_line.h"
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Read the words of `text` up to an empty word or the end. Return the position after these words. */
static char *split(char *text, char *end, char *words[WORDS_MAX], int *n)
{
    *n = 0;
    while (text < end && *n < WORDS_MAX - 1) {
        size_t len = strlen(text);
        if (len > 0)
            words[(*n)++] = text;
        text += len + 1;
        if (len == 0)
            break;
    }
    words[*n] = NULL;
    return text;
}

/* Return the same content for every file of /sys. */
static const char *read_sys(void *user, const char *path)
{
    (void)path;
    return user;
}

static bool pci_address(void *user, const char *gpu, char out[NUMA_PCI_SIZE])
{
    (void)user;
    snprintf(out, NUMA_PCI_SIZE, "%.8s", gpu);
    return true;
}

static void plan_it(const struct cli *cli, char *const *environment, int physical_gpus)
{
    struct plan plan;
    struct ddp_err err;
    struct buf out = { 0 };
    uint64_t four_cpus = 15;
    const struct numa_source look = { .read = read_sys,
                                      .pci_address = pci_address,
                                      .user = "0-2",
                                      .allowed = { .bits = &four_cpus, .limit = 4 } };
    struct plan_facts facts = { .numa = &look,
                                .environ_block = environment,
                                .physical_gpus = physical_gpus,
                                .cpus = 4,
                                .host = "n1",
                                .nonce = "k3x9",
                                .tmp_dir = "/tmp" };
    if (cli->nproc.kind == NPROC_NUMBER && cli->nproc.count > 32)
        return; /* a plan with thousands of workers tests nothing new */
    if (plan_make(&plan, cli, &facts, &err) != DDP_OK)
        return;
    if (!plan_print(&plan, &out) || !plan_print_json(&plan, &out))
        abort();
    buf_free(&out);
    plan_free(&plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *environment[WORDS_MAX], *argv[WORDS_MAX + 1] = { "ddprun" };
    struct cli cli;
    struct ddp_err err = { 0 };
    int n;
    char *text = malloc(size + 1);
    if (text == NULL || size == 0)
        goto done;
    memcpy(text, data, size);
    text[size] = '\0';
    char *rest = split(text + 1, text + size, environment, &n);
    split(rest, text + size, argv + 1, &n);
    if (cli_parse(&cli, n + 1, argv, environment, &err) == DDP_OK) {
        if (cli.program != NULL)
            plan_it(&cli, environment, data[0] % 9);
        cli_free(&cli);
    } else if (err.msg[0] == '\0') {
        abort(); /* rejected without an error text */
    }
done:
    free(text);
    return 0;
}
