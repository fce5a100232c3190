/* The store asks agents whose a plain connection is. A claim that is refused must not hurt the job. */
#include "job.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(store_claims, .timeout = 120);

/* SET and IDENTIFY come in one segment: when the agent claims the connection for its rank, the connection has already
 * introduced itself. The sleep lets the refusal reach the agent while its worker still runs. */
static const char both_at_once[] =
    "exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT\n"
    "t=$(mktemp)\n"
    "trap 'rm -f \"$t\"' EXIT\n"
    "json='{\"role\":\"worker\",\"job\":\"'$TORCHELASTIC_RUN_ID'\",\"rank\":0,\"world_size\":1}'\n"
    "len=$(printf '\\\\x%02x' ${#json})\n"
    "{ printf '\\x00\\xce\\xf7\\x85\\x3c\\x0d\\xc6\\x10\\x00\\x00'\n"
    "  printf '\\x01\\x02\\0\\0\\0\\0\\0\\0\\0/k\\x01\\0\\0\\0\\0\\0\\0\\0v'\n"
    "  printf \"\\\\x80$len\\\\0\\\\0\\\\0\\\\0\\\\0\\\\0\\\\0%s\" \"$json\"; } > \"$t\"\n"
    "cat \"$t\" >&3\n"
    "head -c 13 <&3 | tail -c 9 | od -An -tx1 | sed 's/^ */identified:/'\n"
    "sleep 1\n"
    "echo the end\n";

Test(store_claims, a_worker_that_sets_and_introduces_itself_at_once_goes_on)
{
    struct run_result r = JOB("--no_prefix", "bash", "-c", both_at_once);
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "the end"), 1, "%s%s", r.out, r.err);
    cr_expect_not_null(strstr(r.out, "identified:00"), "%s", r.out);
    run_free(&r);
}
