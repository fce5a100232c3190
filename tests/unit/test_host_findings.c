/* Limits of a machine that a job will run into. */
#include "report/host_checks.h"

#include <criterion/criterion.h>

#define GOOD .nofile = HOST_NO_LIMIT, .nproc = HOST_NO_LIMIT, .memlock = HOST_NO_LIMIT

static void expect(struct host_facts facts, int workers, const char *code, const char *words)
{
    struct finding found[HOST_FINDINGS_MAX];
    const int n = host_findings(&facts, workers, "n1", found);
    if (code == NULL) {
        cr_assert_eq(n, 0, "%s", found[0].sentence);
        return;
    }
    cr_assert_eq(n, 1);
    cr_assert_str_eq(finding_code_name(found[0].code), code);
    cr_assert_str_eq(found[0].subject, "n1");
    cr_assert_not_null(strstr(found[0].sentence, words), "%s", found[0].sentence);
    cr_assert(strstr(found[0].sentence, "${") == NULL && strstr(found[0].advice, "${") == NULL);
}

Test(host_findings, a_good_machine_has_none)
{
    expect((struct host_facts){ GOOD, .shm_size = 1ull << 34, .shm_free = 1ull << 34 }, 8, NULL, NULL);
    expect((struct host_facts){ GOOD, .has_infiniband = true }, 8, NULL, NULL);
}

Test(host_findings, too_few_files)
{
    struct host_facts facts = { GOOD };
    facts.nofile = 40;
    expect(facts, 8, "LIMIT_NOFILE", "n1 allows 40 open files, and this job needs about 60 there");
    expect(facts, 3, NULL, NULL);
}

Test(host_findings, too_few_processes)
{
    struct host_facts facts = { GOOD };
    facts.nproc = 10;
    expect(facts, 8, "LIMIT_NPROC", "10 processes and threads, and this job needs about 11");
}

Test(host_findings, locked_memory_counts_with_infiniband_only)
{
    struct host_facts facts = { GOOD };
    facts.memlock = 8 << 20;
    expect(facts, 8, NULL, NULL);
    facts.has_infiniband = true;
    expect(facts, 8, "LIMIT_MEMLOCK", "n1 allows 8 MiB of locked memory");
}

Test(host_findings, a_container_s_shared_memory)
{
    const struct host_facts facts = { GOOD, .shm_size = 64 << 20, .shm_free = 61 << 20 };
    expect(facts, 8, "SHM_SMALL", "/dev/shm on n1 has 61 MiB free, and 8 workers need about 128 MiB");
    expect(facts, 1, NULL, NULL);
}
