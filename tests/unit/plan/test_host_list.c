/* Tests of lists of hosts, as schedulers write these lists. Wrong, long and hostile lists are rejected before they are
 * expanded. */
#include "plan/hosts.c"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Expand `text`, a host list in Slurm's form. Return the names of the hosts, separated by blanks. */
static const char *spread(const char *text)
{
    static char all[1024];
    char name[HOST_NAME_SIZE];
    size_t used = 0;
    all[0] = '\0';
    for (int i = 0; host_list_slurm_at(text, i, name) && used < sizeof(all); i++)
        used += (size_t)snprintf(all + used, sizeof(all) - used, "%s%s", i > 0 ? " " : "", name);
    return all;
}

Test(host_list, slurms_lists_are_read_in_their_order)
{
    cr_expect_str_eq(spread("n0"), "n0");
    cr_expect_str_eq(spread("n[0-3]"), "n0 n1 n2 n3");
    cr_expect_str_eq(spread("node[08-11,20],gpu3,x[1,3]y"),
                     "node08 node09 node10 node11 node20 gpu3 x1y x3y");
    cr_expect_str_eq(spread("r[0-1]n[08-09]"), "r0n08 r0n09 r1n08 r1n09");
    cr_expect_str_eq(spread("a[1-2].b[1-2]c"), "a1.b1c a1.b2c a2.b1c a2.b2c");
    cr_expect_str_eq(spread("ec2-10-0-0-[1-2].internal"), "ec2-10-0-0-1.internal ec2-10-0-0-2.internal");
}

Test(host_list, slurms_lists_are_counted_without_being_spread)
{
    struct host_list list;
    cr_assert(host_list_slurm("node[00001-60000],gpu[1-9]", &list));
    cr_expect_eq(list.n, 60009);
    cr_expect_str_eq(list.first, "node00001");
}

Test(host_list, what_is_no_list_is_refused)
{
    static const char *const wrong[] = { "",          ",",         "a,,b",
                                         "n[",        "n[]",       "n[1-",
                                         "n[1-2",     "n[2-1]",    "n[a]",
                                         "n[1-2x]",   "n[1;2]",    "n[0-99999]",
                                         "[0-99999]", "n[1-2]m[]", "n[0-9999]m[0-9999]" };
    struct host_list list;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        cr_expect(!host_list_slurm(wrong[i], &list), "%s", wrong[i]);
}

Test(host_list, a_name_that_is_too_long_is_no_name)
{
    char text[400], name[HOST_NAME_SIZE];
    memset(text, 'n', sizeof(text));
    strcpy(text + 300, "[1-2]");
    cr_expect(!host_list_slurm_at(text, 0, name));
}

Test(host_list, every_prefix_of_a_list_is_safe)
{
    const char *text = "r[0-1]n[08-09],gpu[1,3-5]x,last";
    char name[HOST_NAME_SIZE];
    for (size_t len = 0; len <= strlen(text); len++) {
        char *cut = strndup(text, len); /* on the heap, so that a sanitizer detects a read beyond the end */
        struct host_list list;
        const bool ok = host_list_slurm(cut, &list);
        cr_expect(!ok || host_list_slurm_at(cut, list.n - 1, name), "%s", cut);
        cr_expect(!host_list_slurm_at(cut, 1000, name));
        free(cut);
    }
}

Test(host_list, words_are_hosts_once_each)
{
    struct host_list list;
    cr_assert(host_list_words("a.x a.x b.x\nb.x\r\na.x c.x\n", false, "b", &list));
    cr_expect_eq(list.n, 3);
    cr_expect_eq(list.here, 1);
    cr_expect_str_eq(list.first, "a.x");
    cr_assert(host_list_words("hostA 8 hostB 8 hostC 4", true, "hostC.domain", &list));
    cr_expect_eq(list.n, 3);
    cr_expect_eq(list.here, 2);
    cr_assert(host_list_words("a b", false, "elsewhere", &list));
    cr_expect_eq(list.here, -1);
    cr_expect(!host_list_words(" \n", false, "a", &list));
}

Test(host_list, more_words_than_fit_are_refused)
{
    struct host_list list;
    char *text = calloc(HOST_WORDS_MAX + 1, 8);
    for (int i = 0; i <= HOST_WORDS_MAX; i++)
        sprintf(text + strlen(text), "h%d ", i);
    cr_expect(!host_list_words(text, false, "h1", &list));
    *strrchr(text, 'h') = '\0';
    cr_expect(host_list_words(text, false, "h1", &list));
    cr_expect_eq(list.n, HOST_WORDS_MAX);
    free(text);
}

Test(host_list, tasks_of_each_node)
{
    cr_expect_eq(host_list_tasks("4", 0), 4);
    cr_expect_eq(host_list_tasks("4", 1), 0);
    cr_expect_eq(host_list_tasks("2(x3),1", 2), 2);
    cr_expect_eq(host_list_tasks("2(x3),1", 3), 1);
    cr_expect_eq(host_list_tasks("2(x3),1", 4), 0);
    cr_expect_eq(host_list_tasks("2(x", 0), 0);
    cr_expect_eq(host_list_tasks("x", 0), 0);
    cr_expect_eq(host_list_tasks("", 0), 0);
}

/* --- lists of users ------------------------------------------------------------------------------------------ */

/* Return all hosts as "name=count name", or the error. */
static const char *specs(const char *list, bool file)
{
    static char all[1024];
    struct host_spec *hosts = NULL;
    struct ddp_err err;
    int n = 0;
    size_t used = 0;
    const ddp_status status = file ? host_specs_parse_file(slice_str(list), &hosts, &n, &err)
                                   : host_specs_parse(list, &hosts, &n, &err);
    if (status != DDP_OK)
        return strcpy(all, err.msg);
    all[0] = '\0';
    for (int i = 0; i < n && used < sizeof(all); i++) {
        used += (size_t)snprintf(all + used, sizeof(all) - used, "%s%s%s%s", i > 0 ? " " : "", hosts[i].name,
                                 hosts[i].count[0] != '\0' ? "=" : "", hosts[i].count);
        if (hosts[i].port > 0)
            used += (size_t)snprintf(all + used, sizeof(all) - used, "/%d", hosts[i].port);
    }
    free(hosts);
    return all;
}

/* Expect an error about `item`. The error contains `word`, which names the mistake. */
static void expect_refused(const char *list, bool file, const char *item, const char *word)
{
    const char *text = specs(list, file);
    cr_expect(strstr(text, item) != NULL && strstr(text, word) != NULL, "'%s' or '%s' is not in: %s", item,
              word, text);
}

Test(host_specs, a_list_has_names_counts_users_and_ranges)
{
    cr_expect_str_eq(specs("a:8,b:gpu,c", false), "a=8 b=gpu c");
    cr_expect_str_eq(specs("ann@a.example:8,10.0.0.1:4", false), "ann@a.example=8 10.0.0.1=4");
    cr_expect_str_eq(specs("node[08-10]:2,gpu3", false), "node08=2 node09=2 node10=2 gpu3");
    cr_expect_str_eq(specs("fd00::1,[fd00::2]:4,ann@[fd00::3]:2", false), "fd00::1 fd00::2=4 ann@fd00::3=2");
    cr_expect_str_eq(specs("a,a,b,a", false), "a=3 b");
    cr_expect_str_eq(specs("a:2,b,a:1,a", false), "a=4 b");
}

/* Slurm lists the nodes of a scattered allocation one by one, so an item of the list may be long. Only the length of
 * each name in the item is limited. */
Test(host_specs, an_item_may_be_longer_than_a_name)
{
    char list[700] = "node[", file[800];
    struct host_spec *hosts = NULL;
    struct ddp_err err;
    int n = 0;
    for (int i = 0; i < 60; i++)
        sprintf(list + strlen(list), "%s%04d", i > 0 ? "," : "", 2 * i + 1);
    strcat(list, "]");
    cr_assert_eq(host_specs_parse(list, &hosts, &n, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(n, 60);
    cr_expect_str_eq(hosts[59].name, "node0119");
    free(hosts);
    snprintf(file, sizeof(file), "%s slots=2 user=ann\n", list);
    cr_assert_eq(host_specs_parse_file(slice_str(file), &hosts, &n, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(n, 60);
    cr_expect_str_eq(hosts[59].name, "ann@node0119");
    free(hosts);
    memset(list, 'n', HOST_NAME_SIZE);
    list[HOST_NAME_SIZE] = '\0';
    expect_refused(list, false, "host name", "long");
}

/* A single number after a host is a number of workers if the number is at most 1023. From 1024 on, the number is a
 * port. */
Test(host_specs, a_host_has_a_port_and_a_count)
{
    cr_expect_str_eq(specs("ann@a:2222:8,b:22:gpu,c:2222", false), "ann@a=8/2222 b=gpu/22 c/2222");
    cr_expect_str_eq(specs("a:1023,b:1024,c:22:4096", false), "a=1023 b/1024 c=4096/22");
    cr_expect_str_eq(specs("ann@[fd00::2]:2222:4,[::1]:2222,::2", false), "ann@fd00::2=4/2222 ::1/2222 ::2");
    cr_expect_str_eq(specs("n[1-2]:2222:3", false), "n1=3/2222 n2=3/2222");
    cr_expect_str_eq(specs("a:2222,a:2223,a:2222", false), "a=2/2222 a/2223");
    cr_expect_str_eq(specs("ann@a:22 slots=8\nb:2222\nc:2222:4\n", true), "ann@a=8/22 b/2222 c=4/2222");
    cr_expect_str_eq(specs("a:0022:8,b:02222", false), "a=8/22 b/2222");
    expect_refused("a:1:2:3", false, "'a:1:2:3' ", "host name");
    expect_refused("a:0:8", false, "host 'a': '0' ", "port");
    expect_refused("a:65536:8", false, "host 'a': '65536' ", "port");
    expect_refused("a:x:8", false, "host 'a': 'x' ", "port");
    expect_refused("a:22:", false, "host 'a': '' ", "workers");
}

Test(host_specs, files_of_four_launchers_are_read)
{
    cr_expect_str_eq(specs("# open mpi\nn1 slots=4 max_slots=8\n\nn2  slots=2 # old\n", true), "n1=4 n2=2");
    cr_expect_str_eq(specs("n1 count=2 max-count=4\nn2 cpu = 3 cpu_max=3\nn3 username=ann slots-max=1\n"
                           "n4 user-name=bob count=4\nn5 user_name=eve\nn6 max-cpu=2 count-max=2\n",
                           true),
                     "n1=2 n2=3 ann@n3 bob@n4=4 eve@n5 n6");
    cr_expect_str_eq(specs("# mpich\nn1:4 ifname=ib0 binding=user:0+1\nn2:2\n", true), "n1=4 n2=2");
    cr_expect_str_eq(specs("n1:8\r\nn2:8\r\n", true), "n1=8 n2=8");
    cr_expect_str_eq(specs("n1\nn1\nn2\nn2\n", true), "n1=2 n2=2");
    cr_expect_str_eq(specs("node[1-3] slots=2", true), "node1=2 node2=2 node3=2");
    cr_expect_str_eq(specs("n1 slots = 4 max_slots =8\nn2 slots= 2\nn3 slots =\t3 \nn4 \n", true),
                     "n1=4 n2=2 n3=3 n4");
    cr_expect_str_eq(specs("n1:4 port=2222\nn[2-3] port = 22 user=ann slots=2\n", true),
                     "n1=4/2222 ann@n2=2/22 ann@n3=2/22");
    cr_expect_str_eq(specs("n1:4 user=ann\nn[2-3] user = bob slots=2\n", true), "ann@n1=4 bob@n2=2 bob@n3=2");
}

/* A name that begins with '-' would be an option of ssh. */
Test(host_specs, errors_name_the_item_and_the_line)
{
    expect_refused("a,-oProxyCommand=x", false, "'-oProxyCommand=x' ", "host name");
    expect_refused("ann@-x", false, "'ann@-x' ", "host name");
    expect_refused("a;reboot", false, "'a;reboot' ", "USER@HOST");
    expect_refused("a,,b", false, "empty", "host name");
    expect_refused("a:gpu,a:8", false, "'a' ", "twice");
    expect_refused("a:0", false, "host 'a': '0' ", "workers");
    expect_refused("a:9999999999", false, "host 'a': '9999999999' ", "workers");
    expect_refused("n[1-99999]", false, "'n[1-99999]' ", "node[01-16]");
    expect_refused("n[3-1]", false, "'n[3-1]' ", "node[01-16]");
    expect_refused("a\nb slot=4\n", true, "line 2: 'slot=4': unknown word", "slots=N");
    expect_refused("ann@a user=bob\n", true, "line 1: 'ann@a' and user=bob ", "leave out");
    expect_refused("a,b user=ann\n", true, "line 1: user=ann: ", "several hosts");
    expect_refused("a user=ann,bob\n", true, "line 1: user=ann,bob: ", "or users");
    expect_refused("a user=\n", true, "line 1: '@a' ", "host name");
    expect_refused("a user=-ox\n", true, "line 1: '-ox@a' ", "host name");
    expect_refused("a slots=\n", true, "line 1: host 'a': '' ", "workers");
    expect_refused("= 4\n", true, "line 1: '=4' ", "host name");
    expect_refused("a slots=0\n", true, "line 1: host 'a': '0' ", "workers");
    expect_refused("# nothing\n", true, "no host", "file");
    expect_refused("a\nb slots=2 slots=4\n", true, "line 2: 'slots=4': ", "twice");
    expect_refused("a slots=4 user=ann slots=4\n", true, "line 1: 'slots=4': ", "twice");
    expect_refused("a slots=2 count=2\n", true, "line 1: 'count=2': ", "twice");
    expect_refused("a user=ann username=bob\n", true, "line 1: 'username=bob': ", "twice");
    expect_refused("a counts=2\n", true, "line 1: 'counts=2': unknown word", "slots=N");
    expect_refused("a user=ann user=bob\n", true, "line 1: 'user=bob': ", "twice");
    expect_refused("a port=22 port=23\n", true, "line 1: 'port=23': ", "twice");
    expect_refused("a:2222 port=22\n", true, "line 1: 'a:2222' and port=22 ", "leave out");
    expect_refused("a:22 slots=4 port=22\n", true, "line 1: 'a:22' and port=22 ", "leave out");
    expect_refused("a port=0\n", true, "line 1: host 'a': '0' ", "port");
    expect_refused("a port=\n", true, "line 1: host 'a': '' ", "port");
}

/* UTF-16 text contains NUL bytes. The hosts after such a byte must not be dropped silently. */
Test(host_specs, a_nul_byte_is_an_error_with_its_line)
{
    static const char *const texts[] = { "a\nb\0 slots=2\nc\n", "a\n\0\nc\n", "a\nb # \0" };
    static const size_t lens[] = { 14, 6, 8 };
    for (int i = 0; i < 3; i++) {
        struct host_spec *hosts = NULL;
        struct ddp_err err;
        int n = 0;
        cr_assert_eq(host_specs_parse_file(slice_of(texts[i], lens[i]), &hosts, &n, &err), DDP_ERR_ARG);
        cr_expect(strstr(err.msg, "line 2: ") == err.msg && strstr(err.msg, "NUL") != NULL, "%s", err.msg);
        cr_expect_null(hosts);
    }
}
