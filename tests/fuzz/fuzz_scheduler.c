/* Use the input as an environment, which any user may set. ddprun must either reject an environment, or read, apply and
 * print the environment. The input contains the text of a file and then the variables. Each of these texts ends with a
 * NUL. */
#include "cli/cli.h"
#include "plan/hosts.c"
#include "plan/scheduler.h"
#include "tables/worker_env.h"

#include <stdlib.h>
#include <string.h>

enum { VARIABLES_MAX = 64 };

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void print(const struct scheduler *s, const struct cli *cli)
{
    struct buf out = { 0 };
    if (!scheduler_print(s, cli, NULL, &out) || !scheduler_print_json(s, cli, NULL, &out))
        abort(); /* both calls fail only if memory is short, which does not happen here */
    buf_free(&out);
}

static void ask(char *const *block, const char *file, bool per_task)
{
    char *argv[] = { "ddprun", "p", NULL };
    struct scheduler s;
    struct cli cli;
    struct ddp_err err;
    const struct scheduler_facts facts = { .environ_block = block,
                                           .host = "node-1",
                                           .file = file,
                                           .per_task = per_task,
                                           .visible = env_find(block, "CUDA_VISIBLE_DEVICES") };
    if (cli_read(&cli, 2, argv, block, &err) != DDP_OK)
        return;
    cli.per_task = per_task;
    if (scheduler_read(&s, "auto", &facts, &err) == DDP_OK) {
        scheduler_apply(&s, &cli, &err);
        print(&s, &cli);
        cli_check(&cli, &err);
    }
    cli_free(&cli);
}

/* Parse `text` as every kind of host list. A Slurm list of n hosts has no host with index n. */
static void count(const char *text)
{
    char name[HOST_NAME_SIZE];
    struct host_list list;
    if (host_list_slurm(text, &list) && host_list_slurm_at(text, list.n, name))
        abort();
    host_list_words(text, true, "node-1", &list);
    host_list_tasks(text, 3);
    for (int file = 0; file < 2; file++) {
        struct host_spec *specs;
        int n;
        if ((file ? host_specs_parse_file(slice_str(text), &specs, &n, NULL)
                  : host_specs_parse(text, &specs, &n, NULL)) != DDP_OK)
            continue;
        for (int i = 0; i < n; i++)
            if (specs[i].name[0] == '-')
                abort();
        free(specs);
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    char *text = malloc(size + 1), *block[VARIABLES_MAX + 1] = { NULL };
    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    size_t at = strlen(text) + 1;
    for (int n = 0; at < size && n < VARIABLES_MAX; at += strlen(text + at) + 1)
        block[n++] = text + at;
    count(text);
    ask(block, text, false);
    ask(block, text, true);
    free(text);
    return 0;
}
