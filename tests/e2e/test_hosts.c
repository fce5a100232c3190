/* Tests of ddprun --hosts: one command starts all hosts, one console shows all output, and no process is left. A script
 * in place of ssh starts all "hosts" on this machine; the last tests use a real sshd. */
#include "ddp/context.h"
#include "job.h"
#include "procstat.h"
#include "run.h"
#include "training.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

TestSuite(hosts, .timeout = 120);

/* --- a remote shell ---------------------------------------------------------------------------------------- */

/* The script in place of ssh: HOST COMMAND. Some host names fail with an error message of ssh. */
static const char script[] =
    "#!/bin/sh\n"
    "host=$1; shift\n"
    "case $host in locked*) [ -z \"$HOPS\" ] || { echo 'Permission denied (publickey).' >&2; exit 255; } ;; "
    "esac\n"
    "HOPS=$HOPS/$host; export HOPS\n"
    "case $host in\n"
    "refused) echo 'ssh: connect to host refused port 22: Connection refused' >&2; exit 255 ;;\n"
    "key) echo 'ann@key: Permission denied (publickey).' >&2; exit 255 ;;\n"
    "unknown) echo 'Host key verification failed.' >&2; exit 255 ;;\n"
    "changed) echo 'Host key for changed has changed and you have requested strict checking.' >&2; exit 255 "
    ";;\n"
    "startups) printf 'kex_exchange_identification: Connection closed by remote host\\r\\nConnection closed "
    "by ::1 port "
    "22\\n' >&2; exit 255 ;;\n"
    "forks) echo 'sh: 1: Cannot fork' >&2; exit 2 ;;\n"
    "quota) echo 'sh: /tmp/x: Disk quota exceeded' >&2; exit 1 ;;\n"
    "full) exec unshare -mr sh -c \"mount -t tmpfs -o size=4k none '$PWD' && cd '$PWD' && echo x >x && $*\" "
    ";;\n"
    "ended) PATH=${0%/*}/ended:$PATH; export PATH ;;\n"
    "thief) PATH=${0%/*}/thief:$PATH; export PATH ;;\n"
    "arm) PATH=${0%/*}/fake:$PATH; export PATH ;;\n"
    "loader) echo '/proc/self/fd/3: error while loading shared libraries: libx.so' >&2; exit 127 ;;\n"
    "musl) echo 'sh: 1: exec: /proc/self/fd/3: not found' >&2; exit 127 ;;\n"
    "cut) head -c 1000 | sh -c \"$*\"; exit ;;\n"
    "island) exec unshare -rn sh -c \"$*\" ;;\n"
    "leaver*) exec unshare -rn env PET_TIMEOUT=3s sh -c \"$*\" ;;\n"
    "lacks) exec unshare -rmn sh -c \"mount -t tmpfs none '${0%/*}/only' && $*\" ;;\n"
    "records) printf '\\036ddprun here " DDP_VERSION
    " 0 - 10.0.0.1\\n'; exec 3<&0; f=${0%/*}/got; cat <&3 >\"$f\" &\n"
    "until grep -qas '\"ends\":true' \"$f\"; do sleep 0.1; done; sleep 3; kill $!; exit 3 ;;\n"
    "late) sh -c \"$*\"; exec seq 1500000 >&2 ;;\n"
    "noexec) exec unshare -mr sh -c \"mount -t tmpfs -o noexec none '$XDG_RUNTIME_DIR' && $*\" ;;\n"
    "bare) exec sh -c 'exec no-such-ddprun --relay' ;;\n"
    "minimal) exec unshare -mr sh -c \"for l in /lib/*/libcjson.so.*; do mount --bind /dev/null \\$l; done; "
    "$*\" ;;\n"
    "old) printf '\\036ddprun here 9.9.0 0 - 10.0.0.1\\n'; exec cat ;;\n"
    "clears) printf '\\036ddprun here 9\\033[2J 0 - 10.0.0.1\\n'; exec cat ;;\n"
    "nproc) exec setpriv --reuid 65534 --clear-groups prlimit --nproc=1 sh -c \"(:); $*\" ;;\n"
    "moved) mv \"$PWD\" \"$PWD.moved\" ;;\n"
    "sorts) sh -c \"$*\" | sed -u 's/^{\"event\":\"finished\",\\(.*\\)}$/"
    "{\\1,\"event\":\"finished\"}\\nlogout/'; exit ;;\n"
    "noisy) echo Welcome; echo 'Last login: today' >&2 ;;\n"
    "title) printf '\\033]0;title\\007' ;;\n"
    "holder) sleep 1000 & ;;\n"
    "dies) sh -c \"$*\" | dd bs=64k count=6 2>/dev/null; exit 255 ;;\n"
    "clean) exec env -i \"PATH=$PATH\" sh -c \"$*\" ;;\n"
    "low) ulimit -S -n 100; ulimit -S -l 8 ;;\n"
    "gpus) LD_LIBRARY_PATH=${0%/*}/nvml; export LD_LIBRARY_PATH ;;\n"
    "masked) umask 077 ;;\n"
    "nested*) sh -c \"$*\"; exit ;;\n"
    "tapped) tee \"${0%/*}/tapped\" | sh -c \"$*\"; exit ;;\n"
    "slow*) mkdir \"${0%/*}/on/$host\" && ls \"${0%/*}/on\" | wc -l >>\"${0%/*}/counts\" && " AT_GATE
    "; rmdir \"${0%/*}/on/$host\" ;;\n"
    "capped) ulimit -n 100; ulimit -l 8 ;;\n"
    "hung) exec unshare -mr python3 -c \"\n"
    "import ctypes, os, subprocess, sys\n"
    "f = os.open('/dev/fuse', os.O_RDWR)\n"
    "o = b'fd=%d,rootmode=40000,user_id=0,group_id=0' % f\n"
    "r = ctypes.CDLL(None).mount(b'x', os.fsencode(os.getcwd()), b'fuse', 0, o)\n"
    "os.chdir('/')\n"
    "os.environ.pop('PWD', None)\n"
    "sys.exit(subprocess.call(sys.argv[1:]) if r == 0 else 99)\" sh -c \"$*\" ;;\n"
    "chatty) sh -c \"$*\"; while :; do echo more; sleep 0.2; done ;;\n"
    "nologin) printf 'This %s is %s not %s.\\n' account currently available; exit 1 ;;\n"
    "crammed) exec unshare -mr sh -c \"mount -t tmpfs -o size=64k none '$XDG_RUNTIME_DIR' && $*\" ;;\n"
    "stuck) echo $$ >\"${0%/*}/pid\"; sleep 1000; exit 3 ;;\n"
    "deaf) exec env -i sh -c \"trap '' TERM; echo \\$\\$ >'${0%/*}/pid'; sleep 1000; exit 3\" ;;\n"
    "mute) printf '\\036ddprun here " DDP_VERSION " 0 - 10.0.0.1\\n'; exec cat >/dev/null ;;\n"
    "esac\n"
    "exec sh -c \"$*\"\n";

static char *dir, shell[320];

static void write_file(const char *name, const char *text, mode_t mode, char path[300])
{
    snprintf(path, 300, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    cr_assert(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0 && chmod(path, mode) == 0);
}

static void set_up(void)
{
    char path[300];
    dir = job_dir();
    write_file("shell", script, 0755, path);
    snprintf(shell, sizeof(shell), "--remote_shell=%s", path);
}

static void tear_down(void)
{
    job_dir_remove(dir);
}

/* Skip a test that must find processes. Call this function before the test starts a job, because a skipped test would
 * leave its job behind. */
static void skip_without_children(void)
{
    if (access("/proc/thread-self/children", R_OK) != 0)
        cr_skip_test("skipped, because this kernel has no /proc/PID/task/TID/children");
}

#define HOSTS_TEST(name) Test(hosts, name, .init = set_up, .fini = tear_down)

/* Return the output of a shell command in the test's directory. */
static char *in_dir(const char *command)
{
    const char *const argv[] = { "sh", "-c", command, NULL };
    struct run_result r = run_command(argv, &(struct run_options){ .cwd = dir });
    free(r.err);
    return r.out;
}

/* --- a job --------------------------------------------------------------------------------------------------- */

HOSTS_TEST(ranks_follow_the_list_and_every_line_names_its_host)
{
    struct run_result r = JOB("--hosts=a:2,noisy:1,c", shell, "--nproc_per_node=1", WORKER);
    EXPECT(r, 2); /* the count contradicts --nproc_per_node */
    r = JOB("--hosts=a:2,noisy:1,c:1", shell, "sh", "-c",
            "echo rank $RANK of $WORLD_SIZE, local $LOCAL_RANK");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[a:0] rank 0 of 4, local 0"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[a:1] rank 1 of 4, local 1"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[noisy:2] rank 2 of 4, local 0"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[c:3] rank 3 of 4, local 0"), 1, "%s", r.out);
    cr_expect_null(strstr(r.out, "Welcome"), "%s", r.out);
}

HOSTS_TEST(a_host_file_and_one_host_work)
{
    char path[300], option[320];
    write_file("hosts", "# two hosts\na slots=2\nb\n", 0644, path);
    snprintf(option, sizeof(option), "--hostfile=%s", path);
    struct run_result r = JOB(option, shell, "sh", "-c", "echo rank $RANK of $WORLD_SIZE");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[b:2] rank 2 of 3"), 1, "%s", r.out);
    r = JOB("--hosts=b:2", "-Ha:1", shell, "sh", "-c", "echo rank $RANK of $WORLD_SIZE");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[a:2] rank 2 of 3"), 1, "both lists count, in their order: %s", r.out);
    r = JOB("--hosts=localhost:2", "sh", "-c", "echo rank $RANK of $WORLD_SIZE");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[localhost:1] rank 1 of 2"), 1, "%s", r.out);
}

HOSTS_TEST(the_first_failure_is_reported_once_by_its_node)
{
    struct run_result r =
        JOB("--hosts=a:2,b:2", shell, WORKER, "only:3", "err:oops", "exit:7", "all", "forever");
    EXPECT(r, 7);
    cr_expect_eq(job_count_text(r.err, "first: exit 7"), 1, "%s", r.err);
    cr_expect_eq(job_count_text(r.err, "| oops"), 1, "%s", r.err);
    SAYS(r, "times ");
}

HOSTS_TEST(output_stays_whole_when_the_reader_is_slow)
{
    struct run_process *p = JOB_START("--hosts=a,b", shell, "sh", "-c", "seq 100000");
    usleep(300 * 1000);
    struct run_result r = run_wait(p);
    EXPECT(r, 0);
    int lines = 0; /* count by hand, because AddressSanitizer's strstr reads the whole text each time */
    for (const char *c = r.out; *c != '\0'; c++)
        lines += *c == '\n';
    cr_expect_eq(lines, 200000);
    cr_expect_eq(job_count(r.out, "[a:0] 100000"), 1);
    cr_expect_eq(job_count(r.out, "[b:1] 77777"), 1);
}

/* The login shell of host `title` sets the title of the terminal. Neither this output nor the last line of a worker has
 * a newline. */
HOSTS_TEST(lines_without_an_end_hide_no_answer)
{
    struct run_result r = JOB("--hosts=title", shell, "--no_prefix", "sh", "-c", "printf abc");
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "abc");
    r = JOB("--hosts=a,b", shell, "--no_prefix", "sh", "-c", "printf abc");
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "abc\nabc\n");
}

/* The remote shell leaves a process that keeps the shell's streams open, as a master connection of ssh does. */
HOSTS_TEST(a_process_that_holds_the_streams_holds_no_job)
{
    struct run_result r = JOB("--hosts=holder,b", shell, "sh", "-c", "echo rank $RANK");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[holder:0] rank 0"), 1, "%s", r.out);
}

HOSTS_TEST(rank_0_reads_the_input)
{
    static char text[200001];
    memset(text, 'x', sizeof(text) - 1);
    for (size_t i = 99; i < sizeof(text) - 1; i += 100)
        text[i] = '\n';
    struct run_result r = job_run((const char *const[]){ "--hosts=a,b", shell, "sh", "-c", "wc -c", NULL },
                                  &(struct run_options){ .stdin_text = text });
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[a:0] 200000"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[b:1] 0"), 1, "%s", r.out);
}

/* Run a command with 3 MB of input, which is more than the starter sends before the hosts have read. Three hosts have
 * 1, 2 and 1 workers. */
static struct run_result run_with_input(const char *input, const char *command)
{
    static char text[3000001];
    memset(text, 'x', sizeof(text) - 1);
    return job_run((const char *const[]){ "--hosts=a:1,b:2,c:1", shell, input, "sh", "-c", command, NULL },
                   &(struct run_options){ .stdin_text = text });
}

HOSTS_TEST(ranks_of_every_host_read_the_input)
{
    struct run_result r = run_with_input("--stdin=2", "wc -c");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[b:2] 3000000"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[b:1] 0"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[a:0] 0"), 1, "%s", r.out);
    r = run_with_input("--stdin=all", "wc -c");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[a:0] 3000000"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[b:1] 3000000"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[b:2] 3000000"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[c:3] 3000000"), 1, "%s", r.out);
}

/* Rank 0 exits without reading. Rank 3 closes its stdin, and runs until rank 1 has read all of the input. */
HOSTS_TEST(a_host_that_does_not_read_delays_no_other_host)
{
    char command[600];
    snprintf(command, sizeof(command),
             "case $RANK in 0 | 2) ;; 3) exec <&-; while [ ! -e %s/read ]; do sleep 0.1; done ;; "
             "*) wc -c; : >%s/read ;; esac",
             dir, dir);
    struct run_result r = run_with_input("--stdin=0,1,3", command);
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[b:1] 3000000"), 1, "%s", r.out);
}

/* --hosts gives no number of workers for host `a`, so the starter does not know on which host rank 1 runs. */
HOSTS_TEST(input_reaches_a_rank_of_an_unknown_host)
{
    char command[900];
    snprintf(command, sizeof(command),
             "head -c 3000000 /dev/zero | %s --hosts=a,b:3 '%s' --stdin=1 sh -c 'wc -c'", bin("ddprun"),
             shell);
    const char *const argv[] = { "sh", "-c", command, NULL };
    struct run_result r = run_command(
        argv, &(struct run_options){ .env = (const char *const[]){ "CUDA_VISIBLE_DEVICES=", NULL } });
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[b:1] 3000000"), 1, "%s%s", r.out, r.err);
}

HOSTS_TEST(a_rank_that_does_not_exist_cannot_read_the_input)
{
    struct run_result r = JOB("--hosts=a:2,b:2", shell, "--stdin=2,4", "true");
    EXPECT(r, 2);
    SAYS(r, "--stdin");
    r = JOB("--hosts=a,b:2", shell, "--stdin=9", "true");
    EXPECT(r, 125);
    SAYS(r, "--stdin");
}

/* The writer must wait until rank 1 reads: when rank 1 begins to read, the file `written` must not exist yet. No byte
 * may be lost. */
HOSTS_TEST(input_waits_until_the_worker_reads)
{
    char command[900];
    snprintf(command, sizeof(command),
             "{ head -c 40000000 /dev/zero; touch %s/written; } | %s --hosts=a:1,b:1 '%s' --stdin=all "
             "--no_prefix sh -c '"
             "[ $RANK = 1 ] || exec cat >%s/copy; ls %s/written; wc -c'",
             dir, bin("ddprun"), shell, dir, dir);
    const char *const argv[] = { "sh", "-c", command, NULL };
    struct run_result r = run_command(argv, NULL);
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "40000000\n", "%s%s", r.out, r.err);
}

/* The relay's reports about the input are sent between the bytes that the job prints. The test expects the job's bytes
 * without these reports. */
HOSTS_TEST(reports_about_input_leave_the_output_unchanged)
{
    char command[900];
    snprintf(command, sizeof(command),
             "cd %s && head -c 9000000 /dev/urandom >in && printf 'no newline\\036ddprun ' >>in && %s "
             "--hosts=a '%s' "
             "--no_prefix cat <in >out && cmp in out",
             dir, bin("ddprun"), shell);
    const char *const argv[] = { "sh", "-c", command, NULL };
    struct run_result r = run_command(argv, NULL);
    EXPECT(r, 0);
}

HOSTS_TEST(a_low_soft_limit_of_descriptors_is_raised)
{
    char command[800];
    snprintf(command, sizeof(command), "ulimit -S -n 40; exec %s --hosts='n[1-10]' '%s' true", bin("ddprun"),
             shell);
    const char *const argv[] = { "sh", "-c", command, NULL };
    struct run_result r = run_command(argv, NULL);
    EXPECT(r, 0);
}

/* Linux limits arguments to a quarter of the stack limit. Without a stack limit, Linux accepts these arguments of
 * 4.5 MB, but no message may be that long. */
HOSTS_TEST(a_command_line_that_no_message_holds_ends_the_start)
{
    char command[900];
    snprintf(command, sizeof(command),
             "ulimit -s unlimited || exit 99; exec %s --hosts=a,b '%s' true $(seq -f %%0100.0f 45000)",
             bin("ddprun"), shell);
    const char *const argv[] = { "sh", "-c", command, NULL };
    struct run_result r = run_command(argv, NULL);
    if (r.exit_code == 99)
        cr_skip_test("skipped, because this user cannot remove the limit of the stack");
    EXPECT(r, 125);
    SAYS(r, "HOST_NOT_READY");
}

HOSTS_TEST(a_named_variable_reaches_a_host)
{
    struct run_result r = job_run(
        (const char *const[]){ "--hosts=clean", shell, "--env=MINE", "sh", "-c", "echo $MINE$OTHER", NULL },
        &(struct run_options){ .env = (const char *const[]){ "MINE=a b", "OTHER=no", NULL } });
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "[clean:0] a b\n", "%s%s", r.out, r.err);
}

/* Run a job on a host from a shell with soft limits of 300 descriptors and 40 KiB of locked memory. The job prints its
 * limits. */
static struct run_result run_with_limit(const char *host)
{
    char command[800];
    snprintf(command, sizeof(command),
             "ulimit -S -n 300; ulimit -S -l 40; exec %s --hosts=%s '%s' sh -c 'echo $(ulimit -S -n) "
             "$(ulimit -S -l)'",
             bin("ddprun"), host, shell);
    const char *const argv[] = { "sh", "-c", command, NULL };
    return run_command(argv, NULL);
}

HOSTS_TEST(a_host_gets_the_limits_of_the_starting_host)
{
    struct run_result r = run_with_limit("low");
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "[low:0] 300 40\n", "%s%s", r.out, r.err);
    SILENT(r, "limits.conf");
    r = run_with_limit("capped");
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "[capped:0] 100 8\n", "%s%s", r.out, r.err);
    SAYS(r, "100 open files, but");
    SAYS(r, " 8192 bytes of ");
}

HOSTS_TEST(a_host_gets_the_umask_of_the_starting_host)
{
    char command[800];
    snprintf(command, sizeof(command), "umask 027; exec %s --hosts=masked '%s' sh -c umask", bin("ddprun"),
             shell);
    const char *const argv[] = { "sh", "-c", command, NULL };
    struct run_result r = run_command(argv, NULL);
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "[masked:0] 0027\n", "%s%s", r.out, r.err);
}

HOSTS_TEST(a_host_uses_the_virtual_environment_of_the_starting_host)
{
    char command[800], path[300], venv[320], expected[700];
    snprintf(command, sizeof(command), "mkdir -p venv/bin && cp '%s' venv/bin/ddprun && : >job.py",
             bin("ddprun"));
    free(in_dir(command));
    write_file("venv/bin/python", "#!/bin/sh\nreadlink /proc/$PPID/exe\necho python of $VIRTUAL_ENV\n", 0755,
               path);
    snprintf(venv, sizeof(venv), "VIRTUAL_ENV=%s/venv", dir);
    struct run_result r =
        job_run((const char *const[]){ "--hosts=clean", shell, "job.py", NULL },
                &(struct run_options){ .env = (const char *const[]){ venv, NULL }, .cwd = dir });
    EXPECT(r, 0);
    snprintf(expected, sizeof(expected), "[clean:0] %s/venv/bin/ddprun\n[clean:0] python of %s/venv\n", dir,
             dir);
    cr_expect_str_eq(r.out, expected, "%s%s", r.out, r.err);
}

/* Only host `gpus` has the stand-in for NVIDIA's library. The stand-in reports two GPUs. */
HOSTS_TEST(a_host_counts_its_own_gpus)
{
    static const char *const lists[] = { "--hosts=b:1,gpus:gpu", "--hosts=b:1,gpus" };
    char path[300];
    snprintf(path, sizeof(path), "%s/nvml", dir);
    cr_assert_eq(symlink(bin("tests/fake/nvml"), path), 0);
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        struct run_result r =
            job_run((const char *const[]){ lists[i], shell, "--no_python", "sh", "-c",
                                           "echo rank $RANK of $WORLD_SIZE, local $LOCAL_RANK", NULL },
                    &(struct run_options){ .env = (const char *const[]){ "LD_LIBRARY_PATH", NULL } });
        EXPECT(r, 0);
        cr_expect_eq(job_count(r.out, "[b:0] rank 0 of 3, local 0"), 1, "%s", r.out);
        cr_expect_eq(job_count(r.out, "[gpus:2] rank 2 of 3, local 1"), 1, "%s", r.out);
    }
}

/* Another program may read the same pipe later, so ddprun must not change the pipe's flags. */
HOSTS_TEST(a_shared_pipe_stays_blocking)
{
    char command[800];
    snprintf(command, sizeof(command),
             "sleep 1 | { %s --hosts=a '%s' true; grep -c '^flags:.*4000$' /proc/self/fdinfo/0; }",
             bin("ddprun"), shell);
    const char *const argv[] = { "sh", "-c", command, NULL };
    struct run_result r = run_command(argv, NULL);
    cr_expect_str_eq(r.out, "0\n", "%s%s", r.out, r.err);
}

/* ddprun must not be able to open its terminal again, as after su to another user. So the terminal has no
 * permissions. With its capabilities, root could open the terminal nevertheless, so a test that runs as root drops
 * the capabilities. */
HOSTS_TEST(a_terminal_that_cannot_be_opened_is_no_input)
{
    static const char program[] =
        "import os, pty, subprocess, sys\n"
        "m, s = pty.openpty()\n"
        "os.fchmod(s, 0)\n"
        "sys.exit(subprocess.run(['setpriv', '--bounding-set=-all'][:2 * (os.getuid() == 0)] + sys.argv[1:], "
        "stdin=s).returncode)\n";
    const char *const probe[] = { "setpriv", "--bounding-set=-all", "python3", "-c", "import pty", NULL };
    if (geteuid() == 0 && run_command(probe, NULL).exit_code != 0)
        cr_skip_test("skipped, because setpriv or python3 is not available");
    const char *const argv[] = { "python3", "-c", program, bin("ddprun"),    "--hosts=a",
                                 shell,     "sh", "-c",    "cat; echo over", NULL };
    struct run_result r = run_command(argv, NULL);
    EXPECT(r, 0);
    PRINTS(r, "[a:0] over\n");
}

/* A worker searches its environment and the command lines of its ancestors for 64 hexadecimal digits. */
HOSTS_TEST(no_worker_finds_the_secret)
{
    struct run_result r =
        JOB("--hosts=a,b", shell, "sh", "-c",
            "p=$$; while [ $p -gt 1 ]; do cat /proc/$p/cmdline /proc/$p/environ; p=$(cut -d' ' -f4 "
            "/proc/$p/stat); "
            "done 2>/dev/null | tr '\\0' '\\n' | grep -cE '(^|[^0-9a-f])[0-9a-f]{64}([^0-9a-f]|$)'; true");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[a:0] 0"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[b:1] 0"), 1, "%s", r.out);
}

/* Print how many agents and how many workers have the secret in their environment, command line or memory. argv[1] is a
 * file with the messages for a relay, which contain the secret. argv[2] and argv[3] are the pids of the workers, whose
 * parents are the agents. */
static const char search[] =
    "import re, sys\n"
    "text = re.search(rb'\"secret\":\"([0-9a-f]{64})\"', open(sys.argv[1], 'rb').read())[1]\n"
    "needles = [text, bytes.fromhex(text.decode())]\n"
    "def blobs(pid):\n"
    "    yield open(f'/proc/{pid}/cmdline', 'rb').read()\n"
    "    yield open(f'/proc/{pid}/environ', 'rb').read()\n"
    "    with open(f'/proc/{pid}/mem', 'rb') as memory:\n"
    "        for m in re.finditer(r'^([0-9a-f]+)-([0-9a-f]+) r', open(f'/proc/{pid}/maps').read(), re.M):\n"
    "            begin, end = int(m[1], 16), int(m[2], 16)\n"
    "            for at in range(begin, min(end, begin + (1 << 28)), 1 << 20):\n"
    "                try:\n"
    "                    memory.seek(at)\n"
    "                    yield memory.read(min(end - at, (1 << 20) + 64))\n"
    "                except (OSError, ValueError, OverflowError):\n"
    "                    break\n"
    "def has(pid):\n"
    "    return any(n in b for b in blobs(pid) for n in needles)\n"
    "def parent(pid):\n"
    "    return int(re.search(r'^PPid:\\s*(\\d+)', open(f'/proc/{pid}/status').read(), re.M)[1])\n"
    "try:\n"
    "    agents = sum(has(parent(pid)) for pid in sys.argv[2:])\n"
    "    print('agents', agents, 'workers', sum(has(pid) for pid in sys.argv[2:]))\n"
    "except PermissionError:\n"
    "    print('no permission')\n";

static pid_t pid_of(struct run_process *p, const char *prefix);

HOSTS_TEST(the_secret_is_in_no_memory_of_a_worker)
{
    char messages[300], pids[2][16];
    if (bin_is_sanitized())
        cr_skip_test("skipped, because the memory of a sanitizer is too large to search");
    const char *const probe[] = { "python3", "-c", "import re", NULL };
    if (run_command(probe, NULL).exit_code != 0)
        cr_skip_test("skipped, because python3 is not installed");
    struct run_process *p =
        JOB_START("--hosts=b,tapped", shell, "sh", "-c", "echo pid $$ is up; exec sleep 1000");
    snprintf(pids[0], sizeof(pids[0]), "%d", (int)pid_of(p, "[b:0]"));
    snprintf(pids[1], sizeof(pids[1]), "%d", (int)pid_of(p, "[tapped:1]"));
    snprintf(messages, sizeof(messages), "%s/tapped", dir);
    const char *const argv[] = { "python3", "-c", search, messages, pids[0], pids[1], NULL };
    struct run_result found = run_command(argv, NULL);
    run_signal(p, SIGINT);
    struct run_result r = run_wait(p);
    EXPECT(r, 130);
    if (strcmp(found.out, "no permission\n") == 0)
        cr_skip_test("skipped, because this user cannot read the memory of its processes");
    cr_expect_str_eq(found.out, "agents 2 workers 0\n", "%s%s", found.out, found.err);
}

/* --- a host that cannot start -------------------------------------------------------------------------------- */

struct bad_host {
    char hosts[32], finding[32], words[64];
};

ParameterizedTestParameters(hosts, a_host_that_cannot_start_is_one_finding)
{
    static struct bad_host bad[] = {
        { "--hosts=a,refused", "HOST_NOT_REACHED", "refused was not" },
        { "--hosts=key,b", "HOST_REJECTS_LOGIN", ": ann@key" },
        { "--hosts=a,unknown", "HOST_KEY_UNKNOWN", "unknown is" },
        { "--hosts=a,changed", "HOST_KEY_DIFFERS", "changed has" },
        { "--hosts=a,bare,c", "HOST_HAS_NO_DDPRUN", "bare has" },
        { "--hosts=a,clears", "HOST_VERSION_DIFFERS", "ddprun: 9?[2J," },
        { "--hosts=a,old", "HOST_VERSION_DIFFERS", "or pass --ship" },
        { "--hosts=a,nologin", "HOST_HAS_NO_SHELL", ": This account" },
        { "--hosts=a,mute", "HOST_NOT_REACHED", "mute was not" },
        { "--hosts=moved:1", "HOST_LACKS_DIRECTORY", "No such file or directory" },
        { "--hosts=a,startups", "HOST_BUSY", ": kex_exchange_identification: " },
        { "--hosts=a,forks", "HOST_BUSY", ": sh: 1: Cannot fork" },
        { "--hosts=quota,b", "HOST_QUOTA_FULL", "quota has" },
    };
    return cr_make_param_array(struct bad_host, bad, sizeof(bad) / sizeof(bad[0]));
}

ParameterizedTest(struct bad_host *bad, hosts, a_host_that_cannot_start_is_one_finding)
{
    char cwd[300], finding[64];
    set_up();
    snprintf(cwd, sizeof(cwd), "%s/run", dir);
    snprintf(finding, sizeof(finding), "finding  %s", bad->finding);
    cr_assert_eq(mkdir(cwd, 0755), 0);
    struct run_result r = job_run((const char *const[]){ bad->hosts, shell, WORKER, "say:ran", NULL },
                                  &(struct run_options){ .cwd = cwd });
    EXPECT(r, 125);
    cr_expect_eq(job_count_text(r.err, "finding  HOST_"), 1, "%s", r.err);
    if (strstr(bad->hosts, "mute") != NULL)
        SAYS(r, " 15 s each: mute\n");
    SAYS(r, finding);
    cr_expect_not_null(strstr(r.err, bad->words), "%s", r.err);
    cr_expect_null(strstr(r.out, "ran"), "%s", r.out);
    tear_down();
}

static void skip_without_fuse(void)
{
    static const char mounts[] = "import ctypes, os, sys\n"
                                 "f = os.open('/dev/fuse', os.O_RDWR)\n"
                                 "o = b'fd=%d,rootmode=40000,user_id=0,group_id=0' % f\n"
                                 "sys.exit(ctypes.CDLL(None).mount(b'x', b'/mnt', b'fuse', 0, o) != 0)";
    const char *const probe[] = { "unshare", "-mr", "python3", "-c", mounts, NULL };
    struct run_result r = run_command(probe, NULL);
    const bool ok = r.exit_code == 0;
    if (!ok)
        cr_skip_test("skipped, because this user cannot mount a file system of FUSE");
}

/* The working directory of host `hung` is on a FUSE file system that never answers. */
HOSTS_TEST(a_directory_on_a_file_system_that_hangs_is_one_finding)
{
    char cwd[300];
#ifdef __SANITIZE_ADDRESS__
    cr_skip_test("skipped, because LeakSanitizer waits for the thread that waits for this file system");
#endif
    skip_without_fuse();
    snprintf(cwd, sizeof(cwd), "%s/run", dir);
    cr_assert_eq(mkdir(cwd, 0755), 0);
    struct run_result r = job_run((const char *const[]){ "--hosts=hung:1", shell, WORKER, "say:ran", NULL },
                                  &(struct run_options){ .cwd = cwd });
    EXPECT(r, 125);
    SAYS(r, "within 10 s");
    cr_expect_eq(job_count_text(r.err, "finding  HOST_NOT_READY"), 1, "%s", r.err);
}

static void skip_without_namespaces(void)
{
    const char *const probe[] = { "unshare", "-mr", "true", NULL };
    struct run_result r = run_command(probe, NULL);
    if (r.exit_code != 0)
        cr_skip_test("skipped, because user namespaces are not available");
}

/* --- findings without the store ------------------------------------------------------------------------------ */

/* Skip the test if this machine does not permit network namespaces. */
static void skip_without_networks(void)
{
    const char *const probe[] = { "unshare", "-rn", "true", NULL };
    if (run_command(probe, NULL).exit_code != 0)
        cr_skip_test("skipped, because network namespaces are not available");
}

/* In a new network namespace, lo is down, so host `island` has no address. */
HOSTS_TEST(a_single_host_without_an_address_ends_the_start)
{
    skip_without_networks();
    struct run_result r = JOB("--hosts=island:1", shell, "true");
    EXPECT(r, 125);
    cr_expect_eq(job_count_text(r.err, "finding  HOST_NOT_READY"), 1, "%s", r.err);
}

#define APART "--master_addr=127.0.0.1", "true"

static void expect_number_after(const struct run_result *r, const char *front)
{
    const char *at = strstr(r->err, front);
    cr_expect(at != NULL && at[strlen(front)] >= '0' && at[strlen(front)] <= '9', "%s", r->err);
}

/* Host `island` does not reach the store. This host prints no message about this fault, because node 0 prints the
 * reason while node 0 waits. */
HOSTS_TEST(a_host_that_does_not_reach_the_store_is_explained_by_the_others)
{
    skip_without_networks();
    struct run_process *p = JOB_START("--hosts=a:1,island:1", shell, APART);
    cr_assert(run_until_error(p, "reports: waiting for node 0's store", 100000));
    cr_assert(run_until_error(p, "finding  NO_ROUTE\n", 100000));
    run_signal(p, SIGINT);
    struct run_result r = run_wait(p);
    EXPECT(r, 130);
    cr_expect_null(strstr(r.err, "HOST_ENDED"), "%s", r.err);
}

/* Host `leaver` gives up, and no user starts ddprun there again. So the other hosts must not wait until the default
 * timeout of 15 minutes. */
HOSTS_TEST(a_host_that_gives_up_ends_the_wait_of_all)
{
    skip_without_networks();
    struct run_result r = JOB("--hosts=a:1,leaver:1,c:1", shell, APART);
    EXPECT(r, 125);
    SAYS(r, "node cannot");
    SAYS(r, "gives up");
    SAYS(r, "[NO_ROUTE]");
}

/* The guardian of host `island` is killed, so it cannot report anything. The starter must detect that this host has
 * ended. */
HOSTS_TEST(a_host_that_is_killed_before_the_job_begins_ends_the_wait_of_all)
{
    skip_without_networks();
    skip_without_children();
    struct run_process *p = JOB_START("--hosts=a:1,island:1", shell, APART);
    cr_assert(run_until_error(p, "reports: waiting for node 0's store", 100000));
    const pid_t starter = procstat_child(run_pid(p), 0);
    pid_t agent = starter > 0 ? procstat_child(starter, 1) : 0, guardian = 0, child;
    /* the relay, the guardian and the agent, in this order, are the last descendants of the remote shell */
    while (agent > 0 && (child = procstat_child(agent, 0)) > 0) {
        guardian = agent;
        agent = child;
    }
    cr_assert_gt(guardian, 0);
    kill(guardian, SIGKILL);
    struct run_result r = run_wait(p);
    cr_expect_neq(r.exit_code, 0);
    SAYS(r, "[HOST_ENDED]");
    expect_number_after(&r, "island: ddprun ended ");
}

/* Hosts `leaver` and `leaver2` give up, and node 0 ends as soon as one of these two hosts has given up. Host `records`
 * runs a script instead of ddprun. This script writes the messages for its node to the file `got`. */
HOSTS_TEST(a_host_other_than_the_first_gets_one_end_and_no_other_finding)
{
    char path[300], text[65536];
    skip_without_networks();
    struct run_result r = JOB("--hosts=a:1,records:1,leaver:1,leaver2:1", shell, APART);
    EXPECT(r, 125);
    SAYS(r, "node cannot");
    snprintf(path, sizeof(path), "%s/got", dir);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    for (size_t i = 0; i < n; i++) /* turn NULs into spaces, so that job_count_text() reads all messages */
        text[i] = text[i] == '\0' ? ' ' : text[i];
    text[n] = '\0';
    cr_expect_eq(job_count_text(text, "\"ends\":true"), 1, "%s", text);
    cr_expect_eq(job_count_text(text, "\"ends\":false"), 0, "%s", text);
}

/* Host `lacks` does not have the program, and fails with exit code 127. The other hosts end because of this failure, so
 * the job has the same exit code. */
HOSTS_TEST(a_host_without_the_program_gives_the_exit_code_without_a_round)
{
    char path[300];
    skip_without_networks();
    skip_without_namespaces();
    snprintf(path, sizeof(path), "%s/only", dir);
    cr_assert_eq(mkdir(path, 0755), 0);
    write_file("only/prog", "#!/bin/sh\n", 0755, path);
    struct run_result r = JOB("--hosts=a:1,lacks:1,c:1", shell, "--master_addr=127.0.0.1", path);
    EXPECT(r, 127);
    SAYS(r, "node cannot");
    SAYS(r, "[HOST_ENDED]");
    SILENT(r, "exit code 127");
}

/* Run a job on a host with a full disk under the working directory. */
static struct run_result run_on_full_disk(const char *option)
{
    char cwd[300];
    skip_without_namespaces();
    snprintf(cwd, sizeof(cwd), "%s/run", dir);
    mkdir(cwd, 0755);
    return job_run((const char *const[]){ "--hosts=a,full", shell, option, WORKER, "say:ran", NULL },
                   &(struct run_options){ .cwd = cwd });
}

HOSTS_TEST(a_full_disk_is_named_before_the_job_and_stops_only_logs_on_it)
{
    struct run_result r = run_on_full_disk("--log_dir=logs/job");
    EXPECT(r, 125);
    cr_expect_eq(job_count_text(r.err, "finding  HOST_DISK_FULL"), 1, "%s", r.err);
    SAYS(r, ": logs/job: No space left on device (");
    SAYS(r, " inodes free)");
    cr_expect_null(strstr(r.out, "ran"), "%s", r.out);
    char option[320];
    snprintf(option, sizeof(option), "--log_dir=%s", dir);
    r = run_on_full_disk(option);
    EXPECT(r, 0);
    cr_expect_eq(job_count_text(r.err, "finding  HOST_DISK_FULL"), 1, "%s", r.err);
    PRINTS(r, "ran");
}

/* The remote shell of host `nproc` has a real limit of processes, so this shell cannot fork. The shell does not run as
 * root, because the limit does not bind root. */
HOSTS_TEST(a_host_without_room_for_processes_is_named)
{
    char command[700];
    snprintf(command, sizeof(command), "setpriv --reuid 65534 --clear-groups prlimit --nproc=100 test -x %s",
             bin("ddprun"));
    if (system(command) != 0)
        cr_skip_test("skipped, because this user cannot start %s as another user", bin("ddprun"));
    struct run_result r = job_run((const char *const[]){ "--hosts=nproc", shell, "true", NULL },
                                  &(struct run_options){ .cwd = "/" });
    EXPECT(r, 125);
    cr_expect_eq(job_count_text(r.err, "finding  HOST_BUSY"), 1, "%s", r.err);
    cr_expect_null(strstr(r.err, "pids.max of"), "a limit needs a value: %s", r.err);
}

HOSTS_TEST(contradicting_options_are_refused)
{
    static const char *const words[][2] = { { "--nnodes=2", "with --nnodes: " },
                                            { "--nnodes=1:2", "--nnodes=1:2, " },
                                            { "--secret_file=x", "with --secret_file: " },
                                            { "--standalone", "with --standalone: " },
                                            { "--hostfile=x", "with --hostfile; " } };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        struct run_result r = JOB("--hosts=a,b", words[i][0], "true");
        EXPECT(r, 2);
        SAYS(r, "--hosts: ");
        cr_expect_not_null(strstr(r.err, words[i][1]), "%s", r.err);
    }
    struct run_result r = JOB("--hosts=-oProxyCommand=id", "true");
    EXPECT(r, 2);
    r = JOB("--hostfile=/nonexistent", "true");
    EXPECT(r, 2);
    SAYS(r, "/nonexistent: ");
}

HOSTS_TEST(slurm_refuses_hosts_in_a_step_and_starts_them_elsewhere)
{
    static const char *const step[] = { "SLURM_JOB_ID=7", "SLURM_NNODES=1",         "SLURM_STEP_ID=0",
                                        "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1", NULL },
                             *const job[] = { "SLURM_JOB_ID=7", "SLURM_NNODES=1", "SLURM_STEP_ID", NULL };
    struct run_result r =
        job_run((const char *const[]){ "--hosts=a,b", "true", NULL }, &(struct run_options){ .env = step });
    EXPECT(r, 2);
    SAYS(r, "srun --ntasks-per-node=1 ddprun");
    r = job_run((const char *const[]){ "--hosts=a,b", "--dry_run", "true", NULL },
                &(struct run_options){ .env = job });
    EXPECT(r, 0);
    cr_expect_eq(job_count_text(r.out, "srun --nodes=1 "), 2, "%s", r.out);
    r = job_run((const char *const[]){ "--hosts=a,b", "--detach", "true", NULL },
                &(struct run_options){ .env = job });
    EXPECT(r, 2);
}

/* A script replaces srun, and starts each relay in a step of one task. */
HOSTS_TEST(a_named_scheduler_has_no_effect_on_the_hosts)
{
    static const char *const job[] = { "SLURM_JOB_ID=7", "SLURM_NNODES=1", "SLURM_STEP_ID", NULL };
    char path[300], option[320];
    write_file("srun",
               "#!/bin/sh\nwhile [ \"$1\" != sh ]; do shift; done\n"
               "export SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NUM_NODES=1 "
               "SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0\nexec \"$@\"\n",
               0755, path);
    snprintf(option, sizeof(option), "--remote_shell=%s", path);
    struct run_result r =
        job_run((const char *const[]){ "--hosts=a,b", option, "--scheduler=slurm", "true", NULL },
                &(struct run_options){ .env = job });
    EXPECT(r, 0);
    SILENT(r, "NNODES_NOT_LAUNCHED");
}

HOSTS_TEST(any_free_port_of_the_first_host_is_the_port_of_all)
{
    struct run_result r = JOB("--hosts=a,b", shell, "--master_port=0", "true");
    EXPECT(r, 0);
}

HOSTS_TEST(a_dry_run_prints_a_command_for_each_host)
{
    struct run_result r = JOB("--hosts=a:2,ann@b", "--ssh=ssh -p 2222", "--dry_run", "train.py");
    EXPECT(r, 0);
    cr_expect_eq(job_count_text(r.out, "ssh -p 2222 -T -o BatchMode=yes"), 2, "%s", r.out);
    cr_expect_eq(job_count_text(r.out, " ann@b "), 1, "%s", r.out);
    cr_expect_eq(job_count_text(r.out, " --nnodes=2 --node_rank=1 "), 1, "%s", r.out);
    cr_expect_eq(job_count_text(r.out, " --nproc_per_node=2 "), 1, "%s", r.out);
    cr_expect_eq(job_count_text(r.out, " train.py\n"), 2, "%s", r.out);
    cr_expect_null(strstr(r.out, "--dry_run"), "the hosts start the job: %s", r.out);
    r = JOB("--hosts=a", "--dry_run", "train.py", "--dry_run", "two words");
    EXPECT(r, 0);
    cr_expect_eq(job_count_text(r.out, " train.py --dry_run 'two words'\n"), 1, "%s", r.out);
    r = JOB("--hosts=n[0-69]", "--dry_run", "train.py");
    EXPECT(r, 0);
    cr_expect_eq(job_count_text(r.out, "\nn5: ssh "), 4, "%s", r.out);
    cr_expect_eq(job_count_text(r.out, ": ssh "), 54, "%s", r.out);
    r = JOB("--hosts=n[0-69]", "--dry_run", "--json", "train.py");
    EXPECT(r, 0);
    cJSON *json = cJSON_Parse(r.out);
    const cJSON *hosts = cJSON_GetObjectItemCaseSensitive(json, "hosts"),
                *first = cJSON_GetArrayItem(hosts, 0), *last = cJSON_GetArrayItem(hosts, 69);
    cr_expect_eq(cJSON_GetArraySize(hosts), 70, "%s", r.out);
    cr_expect(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(first, "runs_on")), "%s", r.out);
    cr_expect(cJSON_IsString(cJSON_GetObjectItemCaseSensitive(last, "runs_on")), "%s", r.out);
    cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(last, "host")), "n69");
    cr_expect_str_eq(
        cJSON_GetStringValue(cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(last, "command"), 0)),
        "ssh");
    const cJSON *starts = cJSON_GetObjectItemCaseSensitive(last, "starts");
    cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetArrayItem(starts, cJSON_GetArraySize(starts) - 1)),
                     "train.py");
    cJSON_Delete(json);
}

/* --- a program that is shipped ---------------------------------------------------------------------------------- */

/* Run a job with --ship. Each worker prints its agent's program, and "no library" if it has not inherited the shipped
 * library (descriptor 4). */
static struct run_result run_shipped(const char *hosts)
{
    char path[300], variable[320], xdg[300];
    snprintf(path, sizeof(path), "%s/fake", dir);
    snprintf(xdg, sizeof(xdg), "%s/xdg", dir);
    snprintf(variable, sizeof(variable), "XDG_RUNTIME_DIR=%s", xdg);
    mkdir(path, 0755);
    mkdir(xdg, 0700);
    write_file("fake/uname", "#!/bin/sh\necho pdp11\n", 0755, path);
    return job_run(
        (const char *const[]){
            hosts, shell, "--ship", "sh", "-c",
            "readlink /proc/$PPID/exe; cat /proc/$PPID/comm; test -e /proc/$$/fd/4 || echo no library",
            NULL },
        &(struct run_options){ .env = (const char *const[]){ variable, NULL } });
}

static void expect_no_copy(void)
{
    char command[400];
    snprintf(command, sizeof(command), "ls -d %s/xdg/ddprun-ship.*", dir);
    const char *const argv[] = { "sh", "-c", command, NULL };
    struct run_result r = run_command(argv, NULL);
    for (struct patience left = { 0 }; r.out[0] != '\0' && patience_left(&left);)
        r = run_command(argv, NULL); /* a remote shell may end after ddprun */
    cr_expect_str_eq(r.out, "");
}

HOSTS_TEST(a_shipped_program_runs_and_leaves_no_file)
{
    char exe[400];
    struct run_result r = run_shipped("--hosts=a,noisy,c");
    EXPECT(r, 0);
    for (int rank = 0; rank < 3; rank++) {
        snprintf(exe, sizeof(exe), "[%s:%d] %s/xdg/ddprun-ship.",
                 rank == 0   ? "a"
                 : rank == 1 ? "noisy"
                             : "c",
                 rank, dir);
        cr_expect_not_null(strstr(r.out, exe), "%s has no %s", r.out, exe);
    }
    cr_expect_eq(job_count_text(r.out, "] ddprun\n"), 3, "%s", r.out);
    expect_no_copy();
}

/* The second host lacks the library of cJSON, so --ship must bring it. A worker must not inherit the library's
 * descriptor. */
HOSTS_TEST(a_shipped_program_brings_its_library)
{
    char command[400];
    snprintf(command, sizeof(command), "ldd %s | grep -q libcjson", bin("ddprun"));
    if (system(command) == 0) {
        struct run_result without = JOB("--hosts=minimal", shell, "true");
        EXPECT(without, 125);
        SAYS(without, "HOST_CANNOT_RUN_DDPRUN");
    }
    struct run_result r = run_shipped("--hosts=a,minimal");
    EXPECT(r, 0);
    cr_expect_eq(job_count_text(r.out, "] ddprun\n"), 2, "%s", r.out);
    cr_expect_eq(job_count_text(r.out, "] no library\n"), 2, "%s", r.out);
    expect_no_copy();
}

/* In the shipped copy of ddprun, --ship replaces the file name of the cJSON library, so that the copy loads the shipped
 * library. --ship searches the copy for the name of the file from which the library was loaded. Here LD_PRELOAD has
 * loaded the library from a file with another name. ddprun does not contain this name, so --ship must fail. */
HOSTS_TEST(a_preloaded_library_is_not_shipped)
{
    char command[700], preload[400];
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s/preloaded.so", dir);
    snprintf(command, sizeof(command),
             "l=$(ldd %s | grep -o '/[^ ]*/libcjson.so[^ ]*') && cp \"$l\" %s/preloaded.so", bin("ddprun"),
             dir);
    if (system(command) != 0)
        cr_skip_test("skipped, because ddprun needs no library of cJSON");
    struct run_result r =
        job_run((const char *const[]){ "--hosts=a", shell, "--ship", "true", NULL },
                &(struct run_options){
                    .env = (const char *const[]){ preload, "ASAN_OPTIONS=verify_asan_link_order=0", NULL } });
    EXPECT(r, 125);
    SAYS(r, "LD_PRELOAD");
}

/* Another user creates programs at the path of the removed copy, as is possible in /tmp. The job fails, so ddprun
 * searches for py-spy. ddprun must not run any of these programs. */
HOSTS_TEST(no_file_at_the_place_of_the_copy_runs)
{
    char path[300], text[900], command[700], python[300], variable[320];
    snprintf(path, sizeof(path), "%s/thief", dir);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/xdg", dir);
    mkdir(path, 0700);
    snprintf(variable, sizeof(variable), "XDG_RUNTIME_DIR=%s", path);
    snprintf(text, sizeof(text),
             "#!/bin/sh\n/bin/rm \"$@\"; mkdir \"$2\" && cd \"$2\" || exit 1\n"
             "for p in 'ddprun (deleted)' ddprun py-spy; do\n"
             "printf '#!/bin/sh\\ntouch %s/stolen\\n' >\"$p\"; chmod 755 \"$p\"; done\n",
             dir);
    write_file("thief/rm", text, 0755, path);
    snprintf(python, sizeof(python), "%s/python3", dir);
    snprintf(command, sizeof(command), "cp %s %s", bin("tests/prog/worker"), python);
    cr_assert_eq(system(command), 0);
    struct run_result r = job_run((const char *const[]){ "--hosts=thief:2", shell, "--ship", python, "only:1",
                                                         "exit:3", "all", "forever", NULL },
                                  &(struct run_options){ .env = (const char *const[]){ variable, NULL } });
    EXPECT(r, 3);
    snprintf(path, sizeof(path), "%s/stolen", dir);
    cr_expect_neq(access(path, F_OK), 0, "%s", r.err);
}

HOSTS_TEST(a_copy_that_is_cut_off_removes_itself)
{
    struct run_result r = run_shipped("--hosts=cut");
    EXPECT(r, 125);
    SAYS(r, "HOST_NOT_READY");
    expect_no_copy();
}

/* A signal ends the script while the script tries a directory for the copy. */
HOSTS_TEST(a_script_that_is_ended_leaves_no_directory)
{
    char path[300];
    snprintf(path, sizeof(path), "%s/ended", dir);
    mkdir(path, 0755);
    write_file("ended/chmod", "#!/bin/sh\nkill -TERM $PPID\n", 0755, path);
    struct run_result r = run_shipped("--hosts=ended");
    EXPECT(r, 125);
    expect_no_copy();
}

HOSTS_TEST(a_host_that_cannot_run_the_copy_is_named)
{
    static const char *const bad[][2] = { { "--hosts=a,arm", ": pdp11" },
                                          { "--hosts=loader", ": /proc/self/fd/3: error" },
                                          { "--hosts=musl", ": sh: 1: exec:" } };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct run_result r = run_shipped(bad[i][0]);
        EXPECT(r, 125);
        cr_expect_eq(job_count_text(r.err, "finding  HOST_"), 1, "%s", r.err);
        cr_expect_not_null(strstr(r.err, bad[i][1]), "%s", r.err);
    }
    expect_no_copy();
}

HOSTS_TEST(a_directory_without_programs_or_space_is_passed_over)
{
    skip_without_namespaces();
    for (int i = 0; i < 2; i++) {
        struct run_result r = run_shipped(i == 0 ? "--hosts=noexec" : "--hosts=crammed");
        EXPECT(r, 0);
        PRINTS(r, "/ddprun-ship.");
        cr_expect_null(strstr(r.out, "/xdg/"), "%s", r.out);
    }
}

/* --- the end --------------------------------------------------------------------------------------------------- */

/* Start two hosts whose workers and children hold the FIFO of `w` open. */
static struct run_process *start_held(const struct job_witness *w)
{
    struct run_process *p = JOB_START("--hosts=a,b", shell, WORKER, w->hold, "say:ready", "forever");
    cr_assert(run_until_output(p, "[a:0] ready\n", PATIENCE_MS), "%s", run_output(p));
    cr_assert(run_until_output(p, "[b:1] ready\n", PATIENCE_MS), "%s", run_output(p));
    return p;
}

HOSTS_TEST(ctrl_c_ends_all_hosts)
{
    struct job_witness w;
    job_witness_open(&w);
    struct run_process *p = start_held(&w);
    run_signal(p, SIGINT);
    struct run_result r = run_wait(p);
    EXPECT(r, 130);
    cr_expect_eq(job_count_text(r.err, "stopped by SIGINT"), 1, "%s", r.err);
    SILENT(r, "because of");
    cr_expect(job_witness_alone(&w));
    job_witness_close(&w);
}

/* Every node prints an event "finished". The starter prints only one of these events: the event of the node whose
 * worker has failed. */
HOSTS_TEST(one_finished_event_is_the_last_line)
{
    struct run_result r =
        JOB("--hosts=a,b,c", shell, "--json", "sh", "-c", "[ $RANK = 1 ] && exit 7; exec sleep 1000");
    EXPECT(r, 7);
    const char *finished = strstr(r.out, "{\"event\":\"finished\",");
    cr_assert_not_null(finished, "%s", r.out);
    cr_expect_eq(strchr(finished, '\n') + 1 - finished, (long)strlen(finished), "%s", r.out);
    cr_expect_not_null(strstr(finished, "\"node_rank\":1,"), "%s", r.out);
}

/* Host `sorts` prints the members of the event in another order, and then its remote shell prints a line. The starter
 * must find the event and print the line. */
HOSTS_TEST(the_finished_event_is_found_by_its_members)
{
    struct run_result r = JOB("--hosts=a,sorts", shell, "--json", "true");
    EXPECT(r, 0);
    cr_expect_eq(job_count_text(r.out, "\"event\":\"finished\""), 1, "%s", r.out);
    cr_expect_eq(job_count_text(r.out, "logout\n"), 1, "%s", r.out);
    const char *finished = strstr(r.out, "{\"event\":\"finished\",");
    cr_assert_not_null(finished, "%s", r.out);
    cr_expect_eq(strchr(finished, '\n') + 1 - finished, (long)strlen(finished), "%s", r.out);
}

/* The workers catch SIGINT and SIGTERM and continue, and the grace period is longer than the test. So only the second
 * SIGINT ends the job. */
HOSTS_TEST(a_second_ctrl_c_kills_on_all_hosts)
{
    struct job_witness w;
    job_witness_open(&w);
    struct run_process *p = JOB_START("--hosts=a,b", shell, "--grace=1000", WORKER, w.hold, "catch:15",
                                      "catch:2", "say:ready", "forever");
    cr_assert(run_until_output(p, "[a:0] ready\n", PATIENCE_MS), "%s", run_output(p));
    cr_assert(run_until_output(p, "[b:1] ready\n", PATIENCE_MS), "%s", run_output(p));
    run_signal(p, SIGINT);
    cr_expect(run_until_output(p, "[a:0] caught ", PATIENCE_MS), "%s", run_output(p));
    cr_expect(run_until_output(p, "[b:1] caught ", PATIENCE_MS), "%s", run_output(p));
    cr_expect(job_witness_sees_some(&w), "the first SIGINT has killed the workers");
    run_signal(p, SIGINT);
    struct run_result r = run_wait(p);
    EXPECT(r, 130);
    cr_expect_not(r.timed_out);
    cr_expect(job_witness_alone(&w));
    job_witness_close(&w);
}

HOSTS_TEST(nothing_is_left_when_the_starter_is_killed)
{
    struct job_witness w;
    job_witness_open(&w);
    struct run_process *p = start_held(&w);
    run_signal(p, SIGKILL);
    cr_expect(job_witness_alone(&w));
    run_wait(p);
    job_witness_close(&w);
}

HOSTS_TEST(nothing_is_left_when_the_starters_agent_is_killed)
{
    struct job_witness w;
    char xdg[300];
    snprintf(xdg, sizeof(xdg), "%s/xdg", dir);
    mkdir(xdg, 0700);
    setenv("XDG_RUNTIME_DIR", xdg, 1);
    job_witness_open(&w);
    struct run_process *p = start_held(&w);
    const pid_t agent = procstat_child(run_pid(p), 0);
    char *files = in_dir("grep -rlx 'store [0-9.]*:[0-9]*' xdg/ddprun; true");
    cr_expect(files[0] != '\0', "no record");
    free(files);
    if (agent > 0)
        kill(agent, SIGKILL);
    else
        run_signal(p, SIGKILL);
    cr_expect(job_witness_alone(&w));
    run_wait(p);
    files = in_dir("ls xdg/ddprun");
    cr_expect_str_empty(files, "left: %s", files);
    free(files);
    job_witness_close(&w);
}

HOSTS_TEST(a_killed_relay_is_a_lost_host)
{
    skip_without_children();
    struct job_witness w;
    job_witness_open(&w);
    struct run_process *p = start_held(&w);
    const pid_t agent = procstat_child(run_pid(p), 0), relay = agent > 0 ? procstat_child(agent, 1) : 0;
    cr_assert_neq(relay, 0);
    kill(relay, SIGKILL);
    cr_expect(job_witness_alone(&w));
    struct run_result r = run_wait(p);
    EXPECT(r, 125);
    SAYS(r, "HOST_LOST");
    expect_number_after(&r, " was lost ");
    job_witness_close(&w);
}

static bool is_ddprun(pid_t pid)
{
    char path[64], name[32] = "";
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    FILE *file = fopen(path, "r");
    if (file != NULL && fgets(name, sizeof(name), file) == NULL)
        name[0] = '\0';
    if (file != NULL)
        fclose(file);
    return strncmp(name, "ddprun", 6) == 0;
}

/* In each of six jobs, kill one process: the remote shell or the relay of one of three hosts. The lost host must be the
 * only finding. The reports of the other nodes must contain this finding and the exit code of the job. */
HOSTS_TEST(a_lost_host_is_the_reason_in_all_reports)
{
    char option[320];
    skip_without_children();
    snprintf(option, sizeof(option), "--log_dir=%s/logs", dir);
    for (int which = 0; which < 6; which++) {
        struct run_process *p = JOB_START("--hosts=nested,nested2,nested3", shell, option, "sh", "-c",
                                          "echo ready; exec sleep 1000");
        cr_assert(run_until_output(p, "[nested:0] ready\n", PATIENCE_MS), "%s", run_output(p));
        cr_assert(run_until_output(p, "[nested2:1] ready\n", PATIENCE_MS), "%s", run_output(p));
        cr_assert(run_until_output(p, "[nested3:2] ready\n", PATIENCE_MS), "%s", run_output(p));
        const pid_t starter = procstat_child(run_pid(p), 0);
        pid_t lost = starter > 0 ? procstat_child(starter, which % 3) : 0;
        while (which >= 3 && lost > 0 && !is_ddprun(lost))
            lost = procstat_child(lost, 0);
        cr_assert_gt(lost, 0);
        kill(lost, SIGKILL);
        struct run_result r = run_wait(p);
        EXPECT(r, 125);
        cr_expect_eq(job_count_text(r.err, "finding  HOST_LOST"), 1, "%d: %s", which, r.err);
        cr_expect_eq(job_count_text(r.err, "exit  "), 0, "%d: %s", which, r.err);
        char *text =
            in_dir("cat logs/*_?*/report.json | grep -cE '\"(exit_code\":.125|code\":.\"HOST_LOST\"),'; "
                   "rm -r logs");
        cr_expect(atoi(text) >= 4, "%d: %s", which, text);
        free(text);
    }
}

HOSTS_TEST(a_relay_that_a_signal_ends_reports_no_lost_connection)
{
    skip_without_children();
    struct run_process *p =
        JOB_START("--hosts=nested,nested2", shell, "sh", "-c", "echo ready; exec sleep 1000");
    cr_assert(run_until_output(p, "[nested:0] ready\n", PATIENCE_MS), "%s", run_output(p));
    cr_assert(run_until_output(p, "[nested2:1] ready\n", PATIENCE_MS), "%s", run_output(p));
    const pid_t starter = procstat_child(run_pid(p), 0);
    pid_t relay = starter > 0 ? procstat_child(starter, 1) : 0;
    while (relay > 0 && !is_ddprun(relay))
        relay = procstat_child(relay, 0);
    cr_assert_gt(relay, 0);
    kill(relay, SIGTERM);
    struct run_result r = run_wait(p);
    EXPECT(r, 143);
    cr_expect_eq(job_count_text(r.err, "HOST_LOST"), 0, "%s", r.err);
    SAYS(r, "SIGTERM");
}

/* The relay does not answer, so the starter kills the remote shell. The exit code of the job is that of SIGINT,
 * the user's first signal. */
HOSTS_TEST(a_host_that_does_not_answer_to_two_stops_ends_by_the_first)
{
    skip_without_children();
    struct run_process *p = JOB_START("--hosts=nested", shell, "sh", "-c", "echo ready; exec sleep 1000");
    cr_assert(run_until_output(p, "[nested:0] ready\n", PATIENCE_MS), "%s", run_output(p));
    const pid_t starter = procstat_child(run_pid(p), 0);
    pid_t relay = starter > 0 ? procstat_child(starter, 0) : 0;
    while (relay > 0 && !is_ddprun(relay))
        relay = procstat_child(relay, 0);
    cr_assert_gt(relay, 0);
    kill(relay, SIGSTOP);
    run_signal(p, SIGINT);
    usleep(300 * 1000);
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    EXPECT(r, 130);
}

/* Send SIGTERM to two processes, as a batch system does: to the relay and the ddprun of the second host, or to both
 * processes of the starter. ddprun must treat the two signals as one request, so the worker must keep its whole grace
 * period. The worker needs 2 s to handle SIGTERM. If a relay loses its connection but gets no signal, ddprun kills the
 * workers after 500 ms. In this case the test would fail. */
static void expect_grace(bool at_starter)
{
    char command[600];
    skip_without_children();
    snprintf(command, sizeof(command),
             "trap 'sleep 2; touch %s/saved$RANK; exit 0' TERM; echo ready; while :; do sleep 0.1; done",
             dir);
    struct run_process *p = JOB_START("--hosts=nested,nested2", shell, "--grace=60", "sh", "-c", command);
    cr_assert(run_until_output(p, "[nested:0] ready\n", PATIENCE_MS), "%s", run_output(p));
    cr_assert(run_until_output(p, "[nested2:1] ready\n", PATIENCE_MS), "%s", run_output(p));
    const pid_t starter = procstat_child(run_pid(p), 0);
    pid_t relay = starter > 0 ? procstat_child(starter, 1) : 0;
    while (relay > 0 && !is_ddprun(relay))
        relay = procstat_child(relay, 0);
    const pid_t guardian = relay > 0 ? procstat_child(relay, 0) : 0;
    cr_assert_gt(guardian, 0);
    kill(at_starter ? starter : guardian, SIGTERM);
    kill(at_starter ? run_pid(p) : relay, SIGTERM);
    struct run_result r = run_wait(p);
    EXPECT(r, 143);
    char *saved = in_dir("ls saved1");
    cr_expect_str_eq(saved, "saved1\n", "%s", r.err);
    free(saved);
}

HOSTS_TEST(a_signal_to_all_processes_of_a_host_keeps_the_grace_period)
{
    expect_grace(false);
}

HOSTS_TEST(a_signal_to_both_processes_of_the_starter_keeps_the_grace_period)
{
    expect_grace(true);
}

/* systemd sends SIGTERM to every process of the starting host: to ddprun and to the remote shells. */
HOSTS_TEST(a_signal_to_the_starter_and_its_shells_is_no_lost_host)
{
    skip_without_children();
    struct run_process *p =
        JOB_START("--hosts=nested,nested2", shell, "sh", "-c", "echo ready; exec sleep 1000");
    cr_assert(run_until_output(p, "[nested:0] ready\n", PATIENCE_MS), "%s", run_output(p));
    cr_assert(run_until_output(p, "[nested2:1] ready\n", PATIENCE_MS), "%s", run_output(p));
    const pid_t starter = procstat_child(run_pid(p), 0);
    const pid_t shells[] = { starter > 0 ? procstat_child(starter, 0) : 0,
                             starter > 0 ? procstat_child(starter, 1) : 0 };
    cr_assert(shells[0] > 0 && shells[1] > 0);
    kill(starter, SIGTERM);
    run_signal(p, SIGTERM);
    kill(shells[0], SIGTERM);
    kill(shells[1], SIGTERM);
    struct run_result r = run_wait(p);
    EXPECT(r, 143);
    SILENT(r, "HOST_LOST");
}

/* Kill the agent of a host, and return the result of the job. */
static struct run_result kill_agent_of(int host)
{
    struct job_witness w;
    skip_without_children();
    job_witness_open(&w);
    struct run_process *p = start_held(&w);
    const pid_t starter = procstat_child(run_pid(p), 0);
    pid_t agent = 0, last = starter > 0 ? procstat_child(starter, host) : 0;
    for (pid_t next; last > 0 && (next = procstat_child(last, 0)) > 0; last = next)
        agent = last; /* at the end, `last` is the worker, and `agent` is its parent */
    cr_assert_gt(agent, 0);
    kill(agent, SIGKILL);
    cr_expect(job_witness_alone(&w));
    job_witness_close(&w);
    return run_wait(p);
}

/* ddprun on the host of the killed agent exits with code 137. But the job has the exit code of the first host. This
 * code is 125, because the first host has lost a node. */
HOSTS_TEST(a_killed_agent_of_another_host_is_a_lost_node)
{
    struct run_result r = kill_agent_of(1);
    EXPECT(r, 125);
    SAYS(r, "of node 1");
}

HOSTS_TEST(a_killed_agent_of_the_first_host_is_a_signal)
{
    struct run_result r = kill_agent_of(0);
    EXPECT(r, 137);
}

/* --- signals of a user ----------------------------------------------------------------------------------------- */

/* Return the pid that a rank has printed. */
static pid_t pid_of(struct run_process *p, const char *prefix)
{
    char text[64];
    snprintf(text, sizeof(text), "%s pid ", prefix);
    cr_assert(run_until_output(p, text, PATIENCE_MS), "%s", run_output(p));
    cr_assert(run_until_output(p, " is up\n", PATIENCE_MS), "%s", run_output(p));
    return (pid_t)atoi(strstr(run_output(p), text) + strlen(text));
}

HOSTS_TEST(ctrl_z_stops_the_workers_of_all_hosts_and_fg_continues_them)
{
    struct run_process *p = JOB_START("--hosts=a,b", shell, "sh", "-c", "echo pid $$ is up; exec sleep 1000");
    const pid_t workers[] = { pid_of(p, "[a:0]"), pid_of(p, "[b:1]") };
    run_signal(p, SIGTSTP);
    for (int i = 0; i < 2; i++)
        cr_expect(job_until_state(workers[i], 'T'), "rank %d does not stop", i);
    cr_expect(job_until_state(run_pid(p), 'T'));
    run_signal(p, SIGCONT);
    for (int i = 0; i < 2; i++)
        cr_expect(job_until_state(workers[i], 'S'), "rank %d does not continue", i);
    run_signal(p, SIGINT);
    struct run_result r = run_wait(p);
    EXPECT(r, 130);
}

/* Start a job on a host whose remote shell hangs. Store the pid of this shell in `group`, because the pid is also the
 * id of the shell's process group. */
static struct run_process *start_hanging(const char *hosts, pid_t *group)
{
    char *text = NULL;
    struct run_process *p = JOB_START(hosts, "--grace=600", "--ssh_fanout=2", shell, "true");
    *group = 0;
    for (struct patience wait = { 0 }; *group == 0 && patience_left(&wait);) {
        text = job_file(dir, "pid");
        *group = text != NULL ? atoi(text) : 0;
        free(text);
    }
    cr_assert(*group > 0);
    return p;
}

/* Two texts contain the limit of --timeout: the starter's message while the starter waits, and the finding. */
HOSTS_TEST(the_timeout_limits_the_wait_for_a_remote_shell)
{
    struct run_result r = JOB("--hosts=a,stuck", shell, "--timeout=6500ms", "true");
    EXPECT(r, 125);
    SAYS(r, " 6.5 s each: stuck\n");
    SAYS(r, " within 6.5 s\n");
}

HOSTS_TEST(a_remote_shell_that_does_not_exist_is_named)
{
    struct run_result r = JOB("--hosts=h0,h1", "--remote_shell=/no/shell -x", "true");
    EXPECT(r, 125);
    SAYS(r, "/no/shell to start h0: No such file or directory; ");
    cr_expect_eq(job_count_text(r.err, "/no/shell"), 1, "%s", r.err);
    SILENT(r, "HOST_");
}

HOSTS_TEST(ctrl_c_ends_the_start_at_once)
{
    pid_t group;
    struct run_process *p = start_hanging("--hosts=a,stuck", &group);
    run_signal(p, SIGINT);
    struct run_result r = run_wait(p);
    EXPECT(r, 130);
    cr_expect_eq(job_count_text(r.err, " is cancelled; "), 1, "%s", r.err);
    SILENT(r, "killed");
    cr_expect(kill(-group, 0) != 0 && errno == ESRCH, "a process of the remote shell is left");
}

HOSTS_TEST(a_second_ctrl_c_kills_the_remote_shells)
{
    pid_t group;
    struct run_process *p = start_hanging("--hosts=a,deaf", &group);
    run_signal(p, SIGINT);
    cr_expect(run_until_error(p, " is cancelled; ", PATIENCE_MS));
    run_signal(p, SIGINT);
    struct run_result r = run_wait(p);
    EXPECT(r, 130);
    SAYS(r, " again: killing ");
    cr_expect(kill(-group, 0) != 0 && errno == ESRCH, "a process of the remote shell is left");
}

HOSTS_TEST(ctrl_backslash_prints_the_state_of_all_hosts_and_the_job_continues)
{
    struct run_process *p = JOB_START("--hosts=a,b", shell, WORKER, "catch:10", "say:ready", "forever");
    cr_assert(run_until_output(p, "[a:0] ready\n", PATIENCE_MS), "%s", run_output(p));
    cr_assert(run_until_output(p, "[b:1] ready\n", PATIENCE_MS), "%s", run_output(p));
    run_signal(p, SIGQUIT);
    cr_expect(run_until_error(p, "ddprun: rank 0 (pid ", PATIENCE_MS));
    cr_expect(run_until_error(p, "ddprun: rank 1 (pid ", PATIENCE_MS));
    run_signal(p, SIGUSR1);
    cr_expect(run_until_output(p, "[b:1] caught 10\n", PATIENCE_MS), "%s", run_output(p));
    run_signal(p, SIGINT);
    struct run_result r = run_wait(p);
    EXPECT(r, 130);
}

HOSTS_TEST(sigusr1_reaches_the_workers_of_all_hosts)
{
    struct run_process *p = JOB_START("--hosts=a,b", shell, WORKER, "catch:10", "say:ready", "forever");
    cr_assert(run_until_output(p, "[a:0] ready\n", PATIENCE_MS), "%s", run_output(p));
    cr_assert(run_until_output(p, "[b:1] ready\n", PATIENCE_MS), "%s", run_output(p));
    run_signal(p, SIGUSR1);
    cr_expect(run_until_output(p, "[a:0] caught 10\n", PATIENCE_MS), "%s", run_output(p));
    cr_expect(run_until_output(p, "[b:1] caught 10\n", PATIENCE_MS), "%s", run_output(p));
    run_signal(p, SIGINT);
    struct run_result r = run_wait(p);
    EXPECT(r, 130);
}

/* --- a tree ------------------------------------------------------------------------------------------------------ */

/* HOPS lists the hosts on the way to a host, for example "/n5/n69". */
HOSTS_TEST(seventy_hosts_start_as_a_tree)
{
    /* test a_tree_passes_input_folds_lines_and_collects_files runs the same threads */
    training_skip_same_threads();
    struct run_result r = JOB("--hosts=n[0-69]", shell, "--node_timeout=60s", "sh", "-c", "echo at $HOPS");
    EXPECT(r, 0);
    cr_expect_eq(job_count_text(r.out, "] at /n"), 70, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[n15:15] at /n15"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[n69:69] at /n5/n69"), 1, "%s", r.out);
}

/* Each remote shell adds itself to the directory `on`, and appends the number of entries to `counts`. The shell then
 * waits at the gate, which opens when a shell has counted 32. */
HOSTS_TEST(at_most_32_remote_shells_start_at_once)
{
    char path[300];
    /* this test has the same threads as the test ranks_follow_the_list_and_every_line_names_its_host */
    training_skip_same_threads();
    snprintf(path, sizeof(path), "%s/on", dir);
    cr_assert_eq(mkdir(path, 0755), 0);
    gate_shut();
    struct run_process *p =
        JOB_START("--hosts=slow[1-40]", "--ssh_fanout=0", "--node_timeout=60s", shell, "true");
    char *n = NULL;
    for (struct patience wait = { 0 }; (n == NULL || atoi(n) == 0) && patience_left(&wait);) {
        free(n);
        n = in_dir("grep -cx 32 counts");
    }
    gate_open();
    free(n);
    struct run_result r = run_wait(p);
    gate_gone();
    EXPECT(r, 0);
    char *counts = in_dir("wc -l <counts; sort -n counts | tail -1; ls on");
    cr_expect_str_eq(counts, "40\n32\n", "%s", counts);
    free(counts);
}

/* As soon as a process listens at the port, connect and send the first bytes of a client. Return the number of bytes of
 * the answer. */
static ssize_t ask_port(int port)
{
    const struct sockaddr_in to = { .sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)port),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    char answer[64];
    for (struct patience wait = { 0 }; patience_left(&wait);) {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ssize_t n = -1;
        const struct timeval limit = { .tv_sec = 30 };
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        const bool connected = connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0;
        if (connected && send(fd, "\0early", 6, MSG_NOSIGNAL) == 6)
            n = recv(fd, answer, sizeof(answer), 0);
        if (n < 0 && errno == ECONNRESET)
            n = 0;
        close(fd);
        if (connected)
            return n;
    }
    return -1;
}

/* The relay listens at the store's port until the store starts. If an agent connects to the relay, the relay must not
 * answer. Otherwise the agent would report that another service has the port. */
HOSTS_TEST(a_relay_that_holds_the_stores_port_answers_only_probes)
{
    char path[300], port[32];
    const int free = free_port();
    snprintf(path, sizeof(path), "%s/on", dir);
    cr_assert_eq(mkdir(path, 0755), 0);
    snprintf(port, sizeof(port), "--master_port=%d", free);
    gate_shut();
    struct run_process *p = JOB_START("--hosts=a,slow1", port, "--node_timeout=60s", shell, "true");
    const ssize_t answered = ask_port(free);
    gate_open();
    struct run_result r = run_wait(p);
    gate_gone();
    cr_expect_eq(answered, 0, "the relay answered with %zd bytes", answered);
    EXPECT(r, 0);
}

/* Inner hosts of the tree have no ssh keys for the hosts named `locked`. In the default tree, the starting host then
 * starts these hosts itself. With --ssh_fanout the user has requested the tree, so the missing key is an error. */
HOSTS_TEST(a_host_that_its_host_does_not_reach_starts_from_here_or_is_named)
{
    /* test a_tree_passes_input_folds_lines_and_collects_files runs the same threads */
    training_skip_same_threads();
    struct run_result r =
        JOB("--hosts=n[0-15],locked[16-63]", shell, "--node_timeout=60s", "sh", "-c", "echo at $HOPS");
    EXPECT(r, 0);
    cr_expect_eq(job_count_text(r.out, "] at /"), 64, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[locked63:63] at /locked63"), 1, "%s", r.out);
    cr_expect_eq(job_count_text(r.err, "hosts directly"), 1, "%s", r.err);
    r = JOB("--hosts=a,locked", "--ssh_fanout=1", shell, "true");
    EXPECT(r, 125);
    cr_expect_eq(job_count_text(r.err, "finding  HOST_"), 1, "%s", r.err);
    SAYS(r, ": Permission denied");
    SAYS(r, "HOST_HOP_FAILED");
}

HOSTS_TEST(a_tree_passes_input_folds_lines_and_collects_files)
{
    char option[320];
    static char text[3000001];
    memset(text, 'x', sizeof(text) - 1);
    for (size_t i = 99; i < sizeof(text) - 1; i += 100)
        text[i] = '\n';
    snprintf(option, sizeof(option), "--log_dir=%s/logs", dir);
    struct run_result r =
        job_run((const char *const[]){ "--hosts=n[0-6]", "--ssh_fanout=2", "--ship", shell, "--fold", option,
                                       "--collect_logs", "--tee=1", "sh", "-c",
                                       "wc -c; seq 30000 | tail -1; echo at $HOPS", NULL },
                &(struct run_options){ .stdin_text = text });
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[n0:0] 3000000"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[n6:6] at /n0/n2/n6"), 1, "%s", r.out);
    cr_expect_null(strchr(r.out, '\035'), "%s", r.out);
    SAYS(r, "of 7 hosts");
    char *found = in_dir("cat logs/latest/node6_n6/attempt_0/0/stdout.log");
    cr_expect_str_eq(found, "0\n30000\nat /n0/n2/n6\n", "%s", found);
    free(found);
}

/* Start a job on a tree of three levels: n0 and n1, then n2 to n5, then n6. n6 is below n2, and n2 is below n0. */
static struct run_process *start_tree(const struct job_witness *w)
{
    struct run_process *p = JOB_START("--hosts=n[0-6]", "--ssh_fanout=2", "--node_timeout=60s", shell, WORKER,
                                      w->hold, "catch:10", "say:ready", "forever");
    for (int i = 0; i < 7; i++) {
        char line[32];
        snprintf(line, sizeof(line), "[n%d:%d] ready\n", i, i);
        cr_assert(run_until_output(p, line, PATIENCE_MS), "%s", run_output(p));
    }
    return p;
}

HOSTS_TEST(signals_reach_all_hosts_of_a_tree)
{
    struct job_witness w;
    job_witness_open(&w);
    struct run_process *p = start_tree(&w);
    run_signal(p, SIGTSTP);
    cr_expect(job_until_state(run_pid(p), 'T'));
    run_signal(p, SIGCONT);
    run_signal(p, SIGUSR1);
    cr_expect(run_until_output(p, "[n6:6] caught 10\n", PATIENCE_MS), "%s", run_output(p));
    run_signal(p, SIGINT);
    struct run_result r = run_wait(p);
    EXPECT(r, 130);
    cr_expect(job_witness_alone(&w));
    job_witness_close(&w);
}

/* Store the pids of n0's remote shell, branch and relay in `of`. Return true if all three run. */
static bool find_processes_of_n0(struct run_process *p, pid_t of[3])
{
    const pid_t agent = procstat_child(run_pid(p), 0);
    of[0] = agent > 0 ? procstat_child(agent, 0) : 0;
    of[1] = of[0];
    while (of[1] > 0 && !is_ddprun(of[1]))
        of[1] = procstat_child(of[1], 0);
    of[2] = of[1] > 0 ? procstat_child(of[1], 0) : 0;
    return of[2] > 0;
}

HOSTS_TEST(a_branch_without_a_starter_kills_all_processes_of_a_remote_shell)
{
    skip_without_children();
    pid_t group;
    struct run_process *p = start_hanging("--hosts=n0,n1,deaf", &group); /* deaf is below n0 in the tree */
    const pid_t starter = procstat_child(run_pid(p), 0);
    cr_assert(starter > 0 && kill(-group, 0) == 0);
    run_signal(p, SIGKILL); /* kill the guardian first, because it kills the processes of a dead starter */
    kill(starter, SIGKILL);
    run_wait(p);
    for (struct patience wait = { 0 }; kill(-group, 0) == 0 && patience_left(&wait);)
        continue;
    cr_expect(kill(-group, 0) != 0 && errno == ESRCH, "a process of the remote shell is left");
}

HOSTS_TEST(a_lost_inner_host_is_named_and_its_hosts_end)
{
    skip_without_children();
    for (int which = 0; which < 3; which++) {
        struct job_witness w;
        pid_t of[3];
        job_witness_open(&w);
        struct run_process *p = start_tree(&w);
        cr_assert(find_processes_of_n0(p, of));
        kill(of[which], SIGKILL);
        cr_expect(job_witness_alone(&w));
        struct run_result r = run_wait(p);
        EXPECT(r, 125);
        cr_expect_eq(job_count_text(r.err, "finding  HOST_LOST"), 1, "%d: %s", which, r.err);
        cr_expect_not_null(strstr(r.err, "n0 was lost"), "%d: %s", which, r.err);
        job_witness_close(&w);
    }
}

/* No process reads the output of a branch of the tree. The processes of the branch must still be able to write all
 * their bytes, and end. */
HOSTS_TEST(a_branch_without_a_reader_lets_its_processes_end)
{
    static const char words[] = "\0\0010\0sh\0-c\0echo x; cat; head -c 1000000 /dev/zero && touch done";
    static const char head[] = "c\0\0\0\00560000o\0\0\0";
    char path[320], command[640];
    snprintf(path, sizeof(path), "%s/messages", dir);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fwrite(head, 1, sizeof(head) - 1, file);
    fputc((int)sizeof(words), file);
    fwrite(words, 1, sizeof(words), file);
    cr_assert_eq(fclose(file), 0);
    snprintf(command, sizeof(command), "'%s' --relay <messages | head -c 1 >/dev/null; ls done",
             bin("ddprun"));
    char *text = in_dir(command);
    cr_expect_str_eq(text, "done\n", "%s", text);
    free(text);
}

HOSTS_TEST(nothing_is_left_of_a_tree_when_the_starter_is_killed)
{
    struct job_witness w;
    job_witness_open(&w);
    struct run_process *p = start_tree(&w);
    run_signal(p, SIGKILL);
    cr_expect(job_witness_alone(&w));
    run_wait(p);
    job_witness_close(&w);
}

/* --- log files of all hosts -------------------------------------------------------------------------------------- */

HOSTS_TEST(collected_log_files_are_those_of_the_nodes)
{
    char option[320];
    snprintf(option, sizeof(option), "--log_dir=%s/logs", dir);
    struct run_result r = JOB("--hosts=a:2,b", shell, option, "--collect_logs", "--redirects=3",
                              "--rdzv_id=j", "sh", "-c", "seq 30000; echo rank $RANK >&2");
    EXPECT(r, 0);
    SAYS(r, "of 2 hosts");
    char *text = in_dir("cd logs/latest && ls -d node* && cat node1_b/attempt_0/0/stderr.log && "
                        "for n in node0_a node1_b; do diff -r $n ../j_*_${n%_*}; done && "
                        "cat node*/attempt_0/*/stdout.log | wc -l && stat -Lc %a .");
    cr_expect_str_eq(text, "node0_a\nnode1_b\nrank 2\n90000\n700\n", "%s", text);
    free(text);
}

HOSTS_TEST(a_host_that_dies_while_it_sends_is_named_and_the_rest_is_kept)
{
    char option[320];
    snprintf(option, sizeof(option), "--log_dir=%s/logs", dir);
    struct run_result r =
        JOB("--hosts=a,dies,c", shell, option, "--collect_logs", "--redirects=3", "sh", "-c", "seq 100000");
    EXPECT(r, 0);
    cr_expect_eq(job_count_text(r.err, "not copied"), 1, "%s", r.err);
    SAYS(r, "dies: some log");
    char *text = in_dir(
        "cd logs/latest && wc -l <node0_a/attempt_0/0/stdout.log && wc -l <node2_c/attempt_0/0/stdout.log");
    cr_expect_str_eq(text, "100000\n100000\n", "%s", text);
    free(text);
}

HOSTS_TEST(log_files_arrive_although_another_host_is_lost)
{
    char option[320];
    skip_without_children();
    snprintf(option, sizeof(option), "--log_dir=%s/logs", dir);
    struct run_process *p = JOB_START("--hosts=a,b", shell, option, "--collect_logs", "--redirects=2", "sh",
                                      "-c", "seq 300000 >&2; echo ready; exec sleep 1000");
    cr_assert(run_until_output(p, "[a:0] ready\n", PATIENCE_MS), "%s", run_output(p));
    cr_assert(run_until_output(p, "[b:1] ready\n", PATIENCE_MS), "%s", run_output(p));
    const pid_t agent = procstat_child(run_pid(p), 0), relay = agent > 0 ? procstat_child(agent, 1) : 0;
    cr_assert_neq(relay, 0);
    kill(relay, SIGKILL);
    struct run_result r = run_wait(p);
    EXPECT(r, 125);
    SAYS(r, "HOST_LOST");
    char *text = in_dir("wc -l <logs/latest/node0_a/attempt_0/0/stderr.log");
    cr_expect_str_eq(text, "300000\n", "%s", text);
    free(text);
}

/* A worker prints the line by which a relay announces files. */
HOSTS_TEST(a_worker_cannot_send_files)
{
    char option[320];
    snprintf(option, sizeof(option), "--log_dir=%s/logs", dir);
    struct run_result r = JOB("--hosts=a", shell, option, "--collect_logs", "--no_prefix", "sh", "-c",
                              "printf '\\036ddprun files " DDP_VERSION " 0 - \\nf\\0\\0\\0\\0031 x\\n'");
    EXPECT(r, 0);
    char *text = in_dir("ls logs/latest/node0_a");
    cr_expect_str_eq(text, "attempt_0\nreport.json\n", "%s", text);
    PRINTS(r, "ddprun files");
    free(text);
    r = JOB("--hosts=a", shell, "--collect_logs", "true");
    EXPECT(r, 2);
}

/* The starter prints a line of more than 1 MiB in pieces. Here the last piece does not end with a newline. */
HOSTS_TEST(a_long_line_without_an_end_cuts_no_files)
{
    char option[320];
    snprintf(option, sizeof(option), "--log_dir=%s/logs", dir);
    struct run_result r = JOB("--hosts=a", shell, option, "--collect_logs", "--redirects=2", "--no_prefix",
                              "sh", "-c", "head -c 3000001 /dev/zero | tr '\\0' x; seq 30000 >&2");
    EXPECT(r, 0);
    cr_expect_eq(strlen(r.out), 3000001);
    cr_expect_null(strchr(r.out, '\036'));
    char *text = in_dir("wc -l <logs/latest/node0_a/attempt_0/0/stderr.log");
    cr_expect_str_eq(text, "30000\n", "%s", text);
    free(text);
}

HOSTS_TEST(a_shell_that_never_ends_does_not_hold_a_job_without_files)
{
    struct run_result r = JOB("--hosts=a,chatty", shell, "sh", "-c", "exit 3");
    EXPECT(r, 3);
    SILENT(r, "HOST_LOST");
}

/* For 36 s after the end of the job, the test does not read the output of host `late`, whose remote shell still writes.
 * Usually the starter kills a remote shell that still runs 30 s after the end of the job. The starter must not kill
 * this shell, because the shell only waits until the test reads its output. */
HOSTS_TEST(a_slow_reader_loses_no_line_of_a_shell)
{
    struct run_process *p = JOB_START("--hosts=a,late", shell, "sh", "-c", "echo up");
    cr_assert(run_until_output(p, "[late:1] up\n", PATIENCE_MS), "%s", run_output(p));
    sleep(36);
    struct run_result r = run_wait(p);
    EXPECT(r, 0);
    SAYS(r, "\n1500000\n");
}

/* The worker prints a line that looks like the relay's report that the job has ended on this host. A true report also
 * has a token that only the relay knows. */
HOSTS_TEST(a_worker_cannot_report_the_end_of_its_host)
{
    struct run_result r = JOB("--hosts=a", shell, "--no_prefix", "sh", "-c",
                              "printf '\\036ddprun ended " DDP_VERSION " 7 - \\n'; sleep 1; echo more");
    EXPECT(r, 0);
    PRINTS(r, "ddprun ended");
    PRINTS(r, "more");
}

/* The remote shell of host `chatty` continues to write after the last log file, and never ends. */
HOSTS_TEST(a_shell_that_never_ends_does_not_hold_the_end)
{
    char option[320];
    snprintf(option, sizeof(option), "--log_dir=%s/logs", dir);
    struct run_result r =
        JOB("--hosts=a,chatty", shell, option, "--collect_logs", "--redirects=3", "sh", "-c", "exit 0");
    EXPECT(r, 0);
    cr_expect_null(strstr(r.out, "more"), "%s", r.out);
}

HOSTS_TEST(a_job_that_does_not_start_has_no_log_files)
{
    char option[320];
    snprintf(option, sizeof(option), "--log_dir=%s/logs", dir);
    struct run_result r = JOB("--hosts=a,refused", shell, option, "--collect_logs", "true");
    EXPECT(r, 125);
    SAYS(r, "HOST_NOT_REACHED");
    SILENT(r, "log files");
}

/* --- equal lines -------------------------------------------------------------------------------------------------- */

/* Return a command that runs `what` only after all workers have reached this command. ddprun folds equal lines only if
 * they arrive at nearly the same time. */
static const char *met(char command[600], const char *what)
{
    static int meetings;
    snprintf(command, 600,
             "d=%s/meet%d; mkdir -p $d; : >$d/$RANK; until [ $(ls $d | wc -l) -ge $WORLD_SIZE ]; do sleep "
             "0.01; done; "
             "%s",
             dir, meetings++, what);
    return command;
}

/* Run a job with --fold. Expect the line `folded` on stdout and the line `folded_err` on stderr. Try at most five
 * times, because on a busy machine equal lines may come too late for folding. */
static struct run_result fold(const char *hosts, const char *option, const char *what, const char *folded,
                              const char *folded_err)
{
    char command[600];
    struct run_result r = { 0 };
    for (int i = 0; i < 5; i++) {
        r = JOB(hosts, shell, "--fold", option, "sh", "-c", met(command, what));
        EXPECT(r, 0);
        if (job_count(r.out, folded) == 1 && job_count(r.err, folded_err) == 1)
            break;
    }
    cr_expect_eq(job_count(r.out, folded), 1, "%s", r.out);
    cr_expect_eq(job_count(r.err, folded_err), 1, "%s", r.err);
    cr_expect_eq(job_count_text(r.out, "same"), 1, "%s", r.out);
    return r;
}

HOSTS_TEST(equal_lines_of_all_hosts_are_folded)
{
    static const char what[] = "echo same; echo rank $RANK; echo err >&2";
    struct run_result r = fold("--hosts=a:2,b:2", "--quiet", what, "[0-3] same", "[0-3] err");
    cr_expect_eq(job_count(r.out, "[a:1] rank 1"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[b:2] rank 2"), 1, "%s", r.out);
    r = fold("--hosts=a,b", "--log_line_prefix_template=<${rank}> ", what, "<0-1> same", "<0-1> err");
    cr_expect_eq(job_count(r.out, "<1> rank 1"), 1, "%s", r.out);
    r = fold("--hosts=a,b", "--no_prefix", what, "[0-1] same", "[0-1] err");
    cr_expect_eq(job_count(r.out, "rank 1"), 1, "%s", r.out);
}

HOSTS_TEST(a_line_that_is_too_long_for_folding_has_no_mark)
{
    struct run_result r =
        JOB("--hosts=a,b", shell, "--fold", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo");
    EXPECT(r, 0);
    cr_expect_null(strchr(r.out, '\035'));
    cr_expect_eq(job_count_text(r.out, "[b:1] xxx"), 1, "%.100s", r.out);
}

HOSTS_TEST(a_terminal_gets_no_control_characters_of_a_worker)
{
    static const char *const more[] = { "--contain=auto", "--fold" };
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
        struct run_result r = job_run(
            (const char *const[]){ "--hosts=a,b", shell, more[i], "sh", "-c",
                                   "printf 'rank %s \\033]0;title\\007 \\033[31mred\\033[0m\\n' $RANK",
                                   NULL },
            &(struct run_options){ .terminal = true });
        EXPECT(r, 0);
        PRINTS(r, "[b:1] rank 1 \\x1b]0;title\\x07 \033[31mred");
    }
}

HOSTS_TEST(a_terminal_gets_the_control_characters_of_one_worker_only)
{
    static const struct {
        const char *hosts, *printed;
    } rows[] = { { "--hosts=a:1", "rank 0 \033]0;title\007" },
                 { "--hosts=a:2", "rank 1 \\x1b]0;title\\x07" } };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct run_result r =
            job_run((const char *const[]){ rows[i].hosts, shell, "--no_prefix", "sh", "-c",
                                           "printf 'rank %s \\033]0;title\\007\n' $RANK", NULL },
                    &(struct run_options){ .terminal = true });
        EXPECT(r, 0);
        PRINTS(r, rows[i].printed);
    }
}

/* The output of a node is a pipe, and only the starter has the terminal. One hint appears, after the first message with
 * a code, even if several nodes print such messages. The workers must not get the variable that reports the terminal to
 * the nodes. */
HOSTS_TEST(a_terminal_gets_one_hint_of_all_hosts)
{
    static const char fails[] =
        "test -z \"$DDPRUN_TERMINAL\" || exit 9; test $RANK = 1 && exit 7; sleep 1000";
    static const char stops[] = "test $RANK = 1 || kill -STOP $$; sleep 3; exit 7";
    static const struct {
        bool on_terminal;
        const char *level, *program, *hint;
    } rows[] = { { false, "--no_python", fails, NULL },
                 { true, "--no_python", fails, "(ddprun explain WORKER_FAILED)" },
                 { true, "--verbose", fails, "(ddprun explain WORKER_FAILED)" },
                 { true, "--no_python", stops, "(ddprun explain RANK_STOPPED)" } };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct run_result r = job_run((const char *const[]){ "--hosts=a:1,b:1,c:1", shell, rows[i].level,
                                                             "sh", "-c", rows[i].program, NULL },
                                      &(struct run_options){ .terminal = rows[i].on_terminal });
        const char *text = rows[i].on_terminal ? r.out : r.err;
        EXPECT(r, 7);
        cr_expect(rows[i].hint == NULL || strstr(text, rows[i].hint) != NULL, "%s", text);
        cr_expect_eq(job_count_text(text, "(ddprun explain "), rows[i].hint != NULL, "%s", text);
    }
}

/* The starter removes repeated hints. A worker's line that only mentions the command is no hint. */
HOSTS_TEST(a_terminal_gets_the_lines_of_workers_that_mention_the_hint)
{
    struct run_result r =
        job_run((const char *const[]){ "--hosts=a:1,b:1", shell, "--no_prefix", "sh", "-c",
                                       "printf '(ddprun explain X)\n ddprun:   (ddprun explain X)' "
                                       ">&2",
                                       NULL },
                &(struct run_options){ .terminal = true });
    EXPECT(r, 0);
    cr_expect_eq(job_count_text(r.out, "(ddprun explain X)"), 4, "%s", r.out);
}

/* Each of the two hosts may print the same finding before the job. */
HOSTS_TEST(a_terminal_gets_one_hint_if_several_hosts_cannot_start)
{
    char command[1200];
    snprintf(command, sizeof(command),
             "cd '%s' && mkdir gone && cd gone && exec '%s' --hosts=moved,b '%s' true", dir, bin("ddprun"),
             shell);
    struct run_result r = run_command((const char *const[]){ "sh", "-c", command, NULL },
                                      &(struct run_options){ .terminal = true });
    EXPECT(r, 125);
    cr_expect_geq(job_count_text(r.out, "HOST_LACKS_DIRECTORY\n"), 1, "%s", r.out);
    cr_expect_eq(job_count_text(r.out, "(ddprun explain HOST_LACKS_DIRECTORY)"), 1, "%s", r.out);
}

/* --- a relay and a stranger --------------------------------------------------------------------------------------- */

Test(hosts, a_relay_ends_at_bytes_that_are_no_message)
{
    static const char *const inputs[] = { "", "hello\n", "s\x01\x01\x01\x01" };
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        const char *const argv[] = { bin("ddprun"), "--relay", NULL };
        struct run_result r = run_command(argv, &(struct run_options){ .stdin_text = inputs[i] });
        EXPECT(r, 125);
        cr_expect_eq(strstr(r.err, "for users") != NULL, inputs[i][0] != '\0', "%s", r.err);
    }
}

/* Start a process that answers two connections to a loopback address, as the relay of the first host does. Each answer
 * is sent after `wait_ms`. */
static pid_t start_answers(in_addr_t address, int port, int wait_ms)
{
    const struct sockaddr_in at = { .sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)port),
                                    .sin_addr.s_addr = htonl(address) };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    cr_assert_eq(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0, "%s", strerror(errno));
    cr_assert_eq(listen(fd, 8), 0);
    const pid_t pid = fork();
    for (int i = 0; pid == 0 && i < 2; i++) {
        char got[64];
        const int client = accept(fd, NULL, NULL);
        ssize_t n = read(client, got, sizeof(got));
        usleep((useconds_t)wait_ms * 1000);
        n = n > 0 ? send(client, "token", 5, MSG_NOSIGNAL) : n;
        close(client);
    }
    if (pid == 0)
        _exit(0);
    close(fd);
    return pid;
}

/* The preferred address, 127.0.0.2, answers late. The first probe ends when the other address has answered. A second
 * probe waits for all addresses. The starter sends the second probe if the hosts have reached no common address. */
Test(hosts, only_a_repeated_probe_waits_for_a_slow_address)
{
    char command[400], body[100];
    const int port = free_port();
    const pid_t slow = start_answers(INADDR_LOOPBACK + 1, port, 600),
                fast = start_answers(INADDR_LOOPBACK, port, 0);
    const int len = snprintf(body, sizeof(body), "%d token 127.0.0.2 127.0.0.1", port);
    snprintf(command, sizeof(command),
             "for i in 1 2; do printf 'p\\0\\0\\0\\%03o%s'; done | %s --relay | tr -d '\\036'", (unsigned)len,
             body, bin("ddprun"));
    const char *const argv[] = { "sh", "-c", command, NULL };
    struct run_result r = run_command(argv, NULL);
    PRINTS(r, "reached " DDP_VERSION " 0 - 127.0.0.1\n");
    PRINTS(r, "reached " DDP_VERSION " 0 - 127.0.0.2 127.0.0.1\n");
    kill(slow, SIGKILL);
    kill(fast, SIGKILL);
}

/* --- a real sshd -------------------------------------------------------------------------------------------------- */

/* Start an sshd of this user with the lines `more` in its configuration. Return the option --ssh for it. Skip the test
 * without OpenSSH. */
static const char *start_sshd_with(const char *more)
{
    static char option[1200];
    char command[2400];
    if (access("/usr/sbin/sshd", X_OK) != 0 || access("/usr/bin/ssh-keygen", X_OK) != 0)
        cr_skip_test("skipped, because openssh-server or openssh-client is not installed");
    const int port = free_port();
    snprintf(
        command, sizeof(command),
        "cd %s && ssh-keygen -q -t ed25519 -N '' -f host && ssh-keygen -q -t ed25519 -N '' -f user && "
        "{ [ $(id -u) -ne 0 ] || mkdir -p /run/sshd; } && "
        "printf 'ListenAddress 127.0.0.1:%d\\nHostKey %s/host\\nAuthorizedKeysFile "
        "%s/user.pub\\nStrictModes no\\n"
        "PidFile %s/pid\\nUsePAM no\\nPasswordAuthentication no\\n%s' >conf && /usr/sbin/sshd -f conf -E "
        "log && "
        "until [ -s pid ]; do sleep 0.02; done",
        dir, port, dir, dir, dir, more);
    const char *const argv[] = { "sh", "-c", command, NULL };
    struct run_result r = run_command(argv, NULL);
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
    snprintf(option, sizeof(option),
             "--ssh=/usr/bin/ssh -F none -p %d -i %s/user -o UserKnownHostsFile=%s/known -o "
             "StrictHostKeyChecking=accept-new",
             port, dir, dir);
    return option;
}

static const char *start_sshd(void)
{
    return start_sshd_with("");
}

static void stop_sshd(void)
{
    char *pid = job_file(dir, "pid");
    if (pid != NULL)
        kill(atoi(pid), SIGTERM);
    free(pid);
}

HOSTS_TEST(a_job_runs_through_sshd_and_ends_with_the_connection)
{
    const char *ssh = start_sshd();
    struct job_witness w;
    struct run_result r =
        JOB("--hosts=127.0.0.1:2,localhost:1", ssh, "sh", "-c", "echo rank $RANK of $WORLD_SIZE");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[127.0.0.1:1] rank 1 of 3"), 1, "%s%s", r.out, r.err);
    cr_expect_eq(job_count(r.out, "[localhost:2] rank 2 of 3"), 1, "%s%s", r.out, r.err);
    job_witness_open(&w);
    struct run_process *p = JOB_START("--hosts=127.0.0.1:2", ssh, WORKER, w.hold, "say:ready", "forever");
    cr_assert(run_until_output(p, "[127.0.0.1:1] ready\n", PATIENCE_MS), "%s", run_output(p));
    const pid_t agent = procstat_child(run_pid(p), 0), client = agent > 0 ? procstat_child(agent, 0) : 0;
    kill(client > 0 ? client : run_pid(p), SIGKILL);
    cr_expect(job_witness_alone(&w));
    r = run_wait(p);
    cr_expect(client == 0 || strstr(r.err, "HOST_LOST") != NULL, "%s", r.err);
    job_witness_close(&w);
    stop_sshd();
}

/* A port in the list of hosts overrides the port in --ssh. Here nothing listens on the port in --ssh. */
HOSTS_TEST(a_port_of_the_list_reaches_sshd)
{
    char hosts[64], option[1300];
    const char *ssh = start_sshd(), *number = strstr(ssh, " -p ") + 4;
    snprintf(hosts, sizeof(hosts), "--hosts=127.0.0.1:%d:2", atoi(number));
    snprintf(option, sizeof(option), "--ssh=/usr/bin/ssh -F none -p 1%s", strstr(number, " -i"));
    struct run_result r = JOB(hosts, option, "sh", "-c", "echo rank $RANK of $WORLD_SIZE");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[127.0.0.1:1] rank 1 of 2"), 1, "%s%s", r.out, r.err);
    r = JOB(hosts, shell, "true");
    EXPECT(r, 2);
    SAYS(r, "in --remote_shell");
    stop_sshd();
}

HOSTS_TEST(sshd_brings_the_program)
{
    const char *ssh = start_sshd();
    struct run_result r =
        JOB("--hosts=127.0.0.1:1,localhost:1", ssh, "--ship", "sh", "-c", "readlink /proc/$PPID/exe");
    EXPECT(r, 0);
    /* the local host needs no copy of the program */
    cr_expect_eq(job_count_text(r.out, "/ddprun-ship."), 1, "%s%s", r.out, r.err);
    stop_sshd();
}

/* The sshd accepts one login at a time, and a connection that does not log in keeps other logins out. */
HOSTS_TEST(an_sshd_that_accepts_no_more_logins_is_busy)
{
    const char *ssh = start_sshd_with("MaxStartups 1\\n");
    const struct sockaddr_in at = { .sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)atoi(strstr(ssh, " -p ") + 4)),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    struct run_result r = JOB("--hosts=127.0.0.1", ssh, "true");
    EXPECT(r, 125);
    SAYS(r, "HOST_BUSY");
    cr_expect_eq(job_count_text(r.err, "finding  "), 1, "%s", r.err);
    close(fd);
    stop_sshd();
}

HOSTS_TEST(a_key_that_sshd_does_not_accept_is_named)
{
    char option[1300];
    const char *ssh = start_sshd();
    char *key = strstr(snprintf(option, sizeof(option), "%s", ssh) > 0 ? option : option, "/user ");
    cr_assert_not_null(key);
    memcpy(key, "/host ", 6);
    struct run_result r = JOB("--hosts=127.0.0.1", option, "true");
    EXPECT(r, 125);
    SAYS(r, "HOST_REJECTS_LOGIN");
    stop_sshd();
}
