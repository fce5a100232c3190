/* training.c -- see training.h. A run under ddprun differs from a run without ddprun only by the words in front of the
 * command line. */
#include "training.h"

#include "run.h"

#include "ddp/random.h"
#include "train/data/pictures.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void training_skip_same_code(void)
{
    if (bin_is_sanitized())
        cr_skip_test("skipped, because under a sanitizer another test runs the same code");
}

/* Skip a test under ThreadSanitizer. Only `make tsan` sets DDP_BUILD to programs with a sanitizer. */
void training_skip_same_threads(void)
{
    if (getenv("DDP_BUILD") != NULL && bin_is_sanitized())
        cr_skip_test("skipped, because under ThreadSanitizer another test has the same threads");
}

const char *const *training_prefix = (const char *const[]){ NULL };

struct run_result run_line(int workers, const char *line)
{
    static char text[1024];
    const char *argv[40] = { bin("train"), NULL };
    char count[32], *save = NULL;
    int argc = 1;
    if (workers > 1) {
        snprintf(count, sizeof(count), "--nproc_per_node=%d", workers);
        argv[0] = bin("ddprun");
        argv[1] = count;
        argc = 2;
        for (const char *const *word = training_prefix; *word != NULL; word++)
            argv[argc++] = *word;
        argv[argc++] = bin("train");
    }
    size_t used = 0;
    for (const char *c = line; *c != '\0'; c++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s",
                                 *c == '@' ? test_dir : (char[]){ *c, '\0' });
    for (char *word = strtok_r(text, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    /* Hide real GPUs, because their results differ in some bits from those of the CPU. The fake GPU stays visible. */
    static const char *const env[] = { "CUDA_VISIBLE_DEVICES=", NULL };
    return run_command(argv, &(struct run_options){ .env = env, .timeout_ms = 2 * PATIENCE_MS });
}

void train(int workers, const char *line)
{
    struct run_result r = run_line(workers, line);
    cr_assert_eq(r.exit_code, 0, "train %s: exit %d, signal %d\n%s%s", line, r.exit_code, r.signal, r.out,
                 r.err);
}

void train_fails(int workers, const char *line, int exit_code, const char *says)
{
    struct run_result r = run_line(workers, line);
    cr_expect_eq(r.exit_code, exit_code, "train %s: exit %d, signal %d", line, r.exit_code, r.signal);
    cr_expect(has_parts(r.err, says), "'%s' lacks '%s'", r.err, says);
}

void make_data(const char *name, const char *samples, const char *extra)
{
    char words[256] = "", *save = NULL;
    const char *argv[16] = { bin("make-data"), "--out",          test_path(name), "--samples",
                             samples,          "--test_samples", "1000" };
    if (extra != NULL)
        snprintf(words, sizeof(words), "%s", extra);
    int argc = 7;
    for (char *word = strtok_r(words, " ", &save); word != NULL && argc < 15;
         word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    struct run_result r = run_command(argv, NULL);
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
}

static void write_records(const char *dir, const char *name, int n)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file, "%s", path);
    ddp_random luck;
    ddp_random_seed(&luck, (uint64_t)n);
    for (int i = 0; i < n * CIFAR_RECORD; i++)
        fputc(i % CIFAR_RECORD == 0 ? i / CIFAR_RECORD % CIFAR_CLASSES : (int)(ddp_random_next(&luck) & 255),
              file);
    cr_assert_eq(fclose(file), 0);
}

void make_cifar(const char *dir, int samples, int test_samples)
{
    cr_assert_eq(mkdir(dir, 0700), 0, "%s", dir);
    write_records(dir, "data_batch_1.bin", samples);
    write_records(dir, "test_batch.bin", test_samples);
}

char *read_file(const char *name, size_t *len)
{
    FILE *f = fopen(test_path(name), "rb");
    cr_assert_not_null(f, "%s", test_path(name));
    fseek(f, 0, SEEK_END);
    *len = (size_t)ftell(f);
    rewind(f);
    char *bytes = calloc(1, *len + 1);
    cr_assert_eq(fread(bytes, 1, *len, f), *len);
    fclose(f);
    return bytes;
}

void change_file(const char *name, long offset, int byte)
{
    FILE *f = fopen(test_path(name), "r+b");
    cr_assert_not_null(f);
    fseek(f, offset, SEEK_SET);
    fputc(byte, f);
    fclose(f);
}

/* --- content of a summary -------------------------------------------------------------------------------- */

double json_number(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(json, key);
    cr_assert(cJSON_IsNumber(item), "no number '%s'", key);
    return item->valuedouble;
}

struct summary summary(void)
{
    size_t len;
    struct summary s;
    char *text = read_file("summary.json", &len);
    cJSON *json = cJSON_Parse(text);
    cr_assert_not_null(json, "%s", text);
    s.world_size = (int)json_number(json, "world_size");
    s.epochs = (int)json_number(json, "epochs");
    s.steps = (int)json_number(json, "steps");
    s.accuracy = json_number(json, "test_accuracy");
    s.loss = json_number(json, "final_loss");
    s.samples_per_s = json_number(json, "samples_per_s");
    snprintf(s.hash, sizeof(s.hash), "%s", cJSON_GetObjectItem(json, "param_hash")->valuestring);
    cJSON_Delete(json);
    free(text);
    return s;
}

char *step_hashes(void)
{
    size_t len;
    char *text = read_file("metrics", &len), *out = calloc(1, len + 1), *end = out;
    static const char key[] = "\"param_hash\":\"";
    for (const char *at = text; (at = strstr(at, key)) != NULL; end += HASH + 1)
        snprintf(end, HASH + 2, "%.*s ", HASH, at += sizeof(key) - 1);
    free(text);
    return out;
}

/* --- pace ------------------------------------------------------------------------------------------------- */

enum { PAGE = 4096, METRICS_MAX = 256 * 1024 };

void pace_open(struct pace *p, const char *dir)
{
    snprintf(p->path, sizeof(p->path), "%s/metrics", dir);
    cr_assert_eq(mkfifo(p->path, 0600), 0);
    p->fd = open(p->path, O_RDWR | O_CLOEXEC);
    cr_assert_geq(p->fd, 0);
    fcntl(p->fd, F_SETPIPE_SZ, PAGE);
}

bool pace_until(struct pace *p, const char *text)
{
    static char seen[METRICS_MAX];
    seen[0] = '\0';
    return patience_read(p->fd, seen, sizeof(seen), text);
}

static void *read_all(void *fd)
{
    char some[PAGE];
    while (read(*(const int *)fd, some, sizeof(some)) > 0)
        continue;
    return NULL;
}

void pace_go(struct pace *p)
{
    static int fd;
    pthread_t thread;
    fd = p->fd;
    cr_assert_eq(pthread_create(&thread, NULL, read_all, &fd), 0);
    pthread_detach(thread);
}
