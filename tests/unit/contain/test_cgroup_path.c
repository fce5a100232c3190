/* Tests that find the control group of this process in the text of /proc/self/cgroup and /proc/self/mountinfo. The
 * files are texts in the test, because a machine has only one of these layouts. */
#include "contain/cgroup.c"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROC    "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
#define UNIFIED "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define HYBRID                                                               \
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"    \
    "39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n" \
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"

static char dir[CGROUP_PATH_MAX];
static char why[CGROUP_WHY_MAX];

static void found(const char *groups, const char *mounts, const char *expected)
{
    cr_assert(cgroup_locate(groups, mounts, dir, why), "%s", why);
    cr_assert_str_eq(dir, expected);
}

static void not_found(const char *groups, const char *mounts, const char *words)
{
    cr_assert_not(cgroup_locate(groups, mounts, dir, why), "found %s", dir);
    cr_assert_not_null(strstr(why, words), "\"%s\" is not in \"%s\"", words, why);
}

Test(cgroup_path, a_session_of_systemd)
{
    found("0::/user.slice/session-3.scope\n", PROC UNIFIED, "/sys/fs/cgroup/user.slice/session-3.scope");
}

Test(cgroup_path, the_topmost_group)
{
    found("0::/\n", PROC UNIFIED, "/sys/fs/cgroup");
}

Test(cgroup_path, version_2_beside_version_1)
{
    found("8:pids:/x\n4:memory:/y\n0::/z\n", PROC HYBRID, "/sys/fs/cgroup/unified/z");
}

Test(cgroup_path, a_container_that_sees_its_own_group_as_the_root)
{
    found("0::/docker/ab12\n", "35 24 0:30 /docker/ab12 /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
          "/sys/fs/cgroup");
    found("0::/docker/ab12/job\n", "35 24 0:30 /docker/ab12 /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
          "/sys/fs/cgroup/job");
}

Test(cgroup_path, spaces_are_written_as_numbers)
{
    found("0::/a\\040b\n", "35 24 0:30 / /mnt/my\\040groups rw - cgroup2 none rw\n", "/mnt/my groups/a b");
}

Test(cgroup_path, a_group_that_merely_begins_alike_is_outside)
{
    not_found("0::/docker/ab123\n", "35 24 0:30 /docker/ab12 /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
              "outside");
    not_found("0::/../x\n", UNIFIED, "outside");
}

Test(cgroup_path, read_only_in_either_place)
{
    not_found("0::/\n", "35 24 0:30 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup2 rw\n", "read-only");
    not_found("0::/\n", "35 24 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 ro,x\n", "read-only");
}

Test(cgroup_path, a_second_mount_may_help)
{
    found("0::/a\n",
          "35 24 0:30 / /first ro - cgroup2 cgroup2 rw\n"
          "36 24 0:30 / /second rw - cgroup2 cgroup2 rw\n",
          "/second/a");
}

Test(cgroup_path, what_is_missing_is_said)
{
    not_found("", PROC UNIFIED, "cannot read");
    not_found("8:pids:/x\n", PROC UNIFIED, "kernel");
    not_found("0::/\n", PROC, "mounted");
    not_found("0::/\n", "", "cannot read");
}

/* Cut each file at every byte. A sanitizer reports any read beyond the end. */
Test(cgroup_path, files_that_are_cut_anywhere)
{
    const char groups[] = "8:pids:/x\n0::/z\\040y\n", mounts[] = PROC HYBRID;
    for (size_t i = 0; i <= strlen(groups); i++) {
        char *cut = strndup(groups, i);
        cgroup_locate(cut, mounts, dir, why);
        free(cut);
    }
    for (size_t i = 0; i <= strlen(mounts); i++) {
        char *cut = strndup(mounts, i);
        cgroup_locate(groups, cut, dir, why);
        free(cut);
    }
}

Test(cgroup_path, a_path_without_end_is_refused)
{
    static char groups[3 * CGROUP_PATH_MAX], mounts[3 * CGROUP_PATH_MAX];
    memset(groups, 'a', sizeof(groups) - 1);
    memcpy(groups, "0::/", 4);
    cr_expect_not(cgroup_locate(groups, UNIFIED, dir, why));
    snprintf(mounts, sizeof(mounts), "35 24 0:30 / /%.9000s rw - cgroup2 cgroup2 rw\n", groups + 4);
    cr_expect_not(cgroup_locate("0::/\n", mounts, dir, why));
    groups[CGROUP_PATH_MAX - 10] = '\0';
    cr_expect_not(cgroup_locate(groups, UNIFIED, dir, why), "each fits, but not both together");
}

Test(cgroup_path, the_name_of_a_jobs_group)
{
    char name[CGROUP_NAME_MAX];
    cgroup_name(name, "lr 3e-4\n/..", "0123456789abcdef0123456789abcdef");
    cr_expect_str_eq(name, "ddprun-lr_3e-4__..-01234567");
    cgroup_name(name, "a-job-id-that-is-so-long-that-a-file-name-could-not-hold-it-beside-all-the-rest-of-it",
                "0123456789");
    cr_expect_eq(strlen(name), strlen("ddprun-") + 64 + strlen("-01234567"));
}

Test(cgroup_path, a_name_is_known_again)
{
    char name[CGROUP_NAME_MAX];
    cgroup_name(name, "-", "0123456789abcdef0123456789abcdef");
    cr_expect(cgroup_is_name(name), "%s", name);
    cr_expect(cgroup_is_name("ddprun-lr_3e-4-01234567"));
    cr_expect_not(cgroup_is_name("ddprun-01234567"));
    cr_expect_not(cgroup_is_name("ddprun-test-0123456"));
    cr_expect_not(cgroup_is_name("ddprun-test-0123456x"));
    cr_expect_not(cgroup_is_name("ddprun-test.01234567"));
    cr_expect_not(cgroup_is_name("my-ddprun-test-01234567"));
    cr_expect_not(cgroup_is_name(""));
}

Test(cgroup_path, the_events_of_a_group)
{
    cr_expect(cgroup_is_populated("populated 1\nfrozen 0\n"));
    cr_expect(cgroup_is_populated("frozen 0\npopulated 1\n"));
    cr_expect_not(cgroup_is_populated("populated 0\nfrozen 0\n"));
    cr_expect_not(cgroup_is_populated("not_populated 1\n"));
    cr_expect_not(cgroup_is_populated(""));
}

/* --- hierarchies of version 1 -------------------------------------------------------------------------------- */

Test(cgroup_path, the_group_that_counts_memory)
{
    static char group[CGROUP_PATH_MAX];
    const char *groups = "9:name=systemd:/a\n4:cpu,memory:/jobs/x y\n0::/user.slice\n";
    cr_expect(cgroup_own(groups, "memory", group));
    cr_expect_str_eq(group, "/jobs/x y");
    cr_expect(cgroup_own(groups, NULL, group));
    cr_expect_str_eq(group, "/user.slice");
    cr_expect_not(cgroup_own("4:memoryx:/a\n::\nx\n", "memory", group));
    cr_expect_not(cgroup_own("4:cpu:/memory\n", "memory", group));
}

Test(cgroup_path, where_hierarchies_are_mounted)
{
    static struct cgroup_mount m;
    const char *text = "20 1 0:5 / /proc rw - proc proc rw\n"
                       "30 24 0:27 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n"
                       "31 24 0:28 /docker/7 /sys/fs/c\\040g/memory rw - cgroup cgroup rw,memory\n"
                       "32 24 0:29 / /sys/fs/cgroup/unified rw master:1 - cgroup2 cgroup2 rw\nbroken - \n";
    const char *at = text;
    cr_assert(cgroup_next_mount(&at, "memory", &m));
    cr_expect_str_eq(m.root, "/docker/7");
    cr_expect_str_eq(m.where, "/sys/fs/c g/memory");
    cr_expect_not(cgroup_next_mount(&at, "memory", &m), "there is only one");
    at = text;
    cr_assert(cgroup_next_mount(&at, NULL, &m));
    cr_expect_str_eq(m.where, "/sys/fs/cgroup/unified");
    at = "a b - cgroup2\n - \n";
    cr_expect_not(cgroup_next_mount(&at, NULL, &m));
    cr_expect_eq(*at, '\0', "all of it was looked at");
}
