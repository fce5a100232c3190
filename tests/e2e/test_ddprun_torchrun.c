/* What users of torchrun type, on the built ddprun: its options, its name, its file timer. */
#include "run.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(ddprun_torchrun, .timeout = 60);

/* A shell command; $D is ddprun, $T the same called torchrun, and the current directory is empty and goes at the end. */
static struct run_result script(const char *text)
{
    char command[4096];
    snprintf(command, sizeof(command),
             "W=$(mktemp -d) && cd \"$W\" || exit 99; trap 'rm -rf \"$W\"' EXIT; D=%s; ln -s $D torchrun; "
             "T=$W/torchrun\n%s\n",
             bin("ddprun"), text);
    const char *argv[] = { "sh", "-c", command, NULL };
    return run_command(argv, NULL);
}

static void expect(const char *text, int exit_code, const char *out, const char *err)
{
    struct run_result r = script(text);
    cr_assert_eq(r.exit_code, exit_code, "%s\n%s%s", text, r.out, r.err);
    cr_assert(out == NULL || strcmp(r.out, out) == 0, "%s\n%s%s", text, r.out, r.err);
    cr_assert(err == NULL || strstr(r.err, err) != NULL, "%s\n%s", text, r.err);
    run_free(&r);
}

Test(ddprun_torchrun, under_its_name_one_worker_runs_and_nothing_stands_before_its_lines)
{
    expect("$T --no_python sh -c 'echo $WORLD_SIZE ${local_rank} $$'", 0, "1 0 $\n", NULL);
    expect("$T --nproc-per-node=2 --no_python sh -c 'echo line'", 0, "line\nline\n", NULL);
    expect("$T --no_python -t 3 --log-dir=L --role=chief sh -c 'echo line'", 0, "[chief0]:line\n", NULL);
}

Test(ddprun_torchrun, a_stream_that_is_not_teed_has_no_prefix_under_its_name)
{
    static const char lines[] = "$T --nproc-per-node=2 --no_python --tee 0:1,1:2 --log-dir=L sh -c "
                                "'echo out $RANK; echo err $RANK >&2' ";
    char text[512];
    snprintf(text, sizeof(text), "%s2>err | sort; grep rr err | sort", lines);
    expect(text, 0, "[default0]:out 0\nout 1\n[default1]:err 1\nerr 0\n", NULL);
}

/* As in tutorials; nobody could know the port, so nobody is waited for. */
Test(ddprun_torchrun, an_elastic_job_of_one_node_takes_any_port)
{
    static const char *const names[] = { "$D", "$T --no_python" };
    char text[256];
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof(text),
                 "%s --nnodes=1:2 --rdzv_backend=c10d --rdzv_endpoint=localhost:0 --nproc_per_node=1 "
                 "sh -c 'test $MASTER_PORT -gt 0 && echo $WORLD_SIZE'",
                 names[i]);
        expect(text, 0, "1\n", NULL);
    }
}

Test(ddprun_torchrun, a_job_of_one_node_keeps_its_id)
{
    expect("$T --standalone --rdzv-id=zz --no_python sh -c 'echo $TORCHELASTIC_RUN_ID'", 0, "zz\n", NULL);
}

Test(ddprun_torchrun, under_its_name_a_program_is_pythons)
{
    expect("echo 'import sys; print(sys.argv[1:])' >script; $T script --lr 1", 0, "['--lr', '1']\n", NULL);
}

Test(ddprun_torchrun, log_files_lie_where_it_puts_them)
{
    expect("$T --nproc_per_node=2 --rdzv_id=j --max_restarts=1 -r 3 --log_dir=L --no_python sh -c "
           "'test $TORCHELASTIC_RESTART_COUNT = 1' 2>/dev/null; find L -mindepth 2 -name '*.log' | sed "
           "s/j_[a-z0-9]*/j_X/ | sort",
           0,
           "L/j_X/attempt_0/0/stderr.log\nL/j_X/attempt_0/0/stdout.log\nL/j_X/attempt_0/1/stderr.log\n"
           "L/j_X/attempt_0/1/stdout.log\nL/j_X/attempt_1/0/stderr.log\nL/j_X/attempt_1/0/stdout.log\n"
           "L/j_X/attempt_1/1/stderr.log\nL/j_X/attempt_1/1/stdout.log\n",
           NULL);
}

Test(ddprun_torchrun, run_path_is_a_script_in_a_python_of_its_own)
{
    expect("cat >s.py <<'EOS'\nimport sys\nprint(__name__, sys.argv)\nEOS\n$D --nproc_per_node=1 --run-path "
           "s.py a "
           "-b",
           0, "__main__ ['s.py', 'a', '-b']\n", NULL);
}

Test(ddprun_torchrun, lines_with_chosen_words_go_to_one_more_file)
{
    expect("$D --nproc_per_node=2 --log_dir=L --tee=3 --duplicate-stdout-filters=loss,a,,b sh -c 'echo loss "
           "1; echo "
           "none; echo a,b; echo loss >&2' >/dev/null 2>&1; sort L/latest/attempt_0/filtered_stdout.log; ls "
           "L/latest/attempt_0 | tr '\\n' ' '",
           0, "[0] a,b\n[0] loss 1\n[1] a,b\n[1] loss 1\n0 1 filtered_stdout.log ", NULL);
}

Test(ddprun_torchrun, chosen_lines_tell_when_they_were_read)
{
    expect(
        "$D --prefix --timestamps --nproc_per_node=1 --log_dir=L --tee=3 --duplicate-stdout-filters=loss "
        "printf 'loss\nloss' >out; cmp out L/latest/attempt_0/filtered_stdout.log && grep -c $(date +%Y) out",
        0, "2\n", NULL);
}

/* torchrun's event lines are not printed; one note says so. */
Test(ddprun_torchrun, its_event_handler_is_ignored_with_a_note)
{
    expect("$D --nproc_per_node=1 --event-log-handler=console true", 0, "",
           "--event_log_handler without effect");
}

/* A client in a shell: one line, written in one piece. */
#define ASK                                                                                               \
    "printf '{\"version\": 1, \"pid\": %d, \"scope_id\": \"step\", \"expiration_time\": %s, \"signal\": " \
    "%d}\\n'"

Test(ddprun_torchrun, a_timer_that_runs_out_kills_its_worker_and_is_the_cause)
{
    struct run_result r = script("export TORCHELASTIC_ENABLE_FILE_TIMER=1; cat >w "
                                 "<<'EOS'\nF=$TORCHELASTIC_TIMER_FILE\n[ -p $F ] || exit 9\n"
                                 "[ $RANK = 0 ] || " ASK " $$ 1.5 9 >$F\nexec sleep 60\nEOS\n"
                                 "$D --nproc_per_node=2 sh w");
    cr_assert_eq(r.exit_code, 137, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "its timer \"step\" has run out; it gets signal 9"), "%s", r.err);
    cr_assert_not_null(strstr(r.err, "failed first: its timer ran out (SIGKILL)"), "%s", r.err);
    run_free(&r);
}

Test(ddprun_torchrun, a_timer_that_is_released_and_one_of_a_stranger_hurt_nobody)
{
    struct run_result r = script(
        "export TORCHELASTIC_ENABLE_FILE_TIMER=1 TORCHELASTIC_TIMER_FILE=$W/fifo; mkfifo fifo; sleep 50 & "
        "S=$!\n"
        "cat >w <<'EOS'\nF=$TORCHELASTIC_TIMER_FILE\n" ASK " $$ 99999999999 9 >$F\n" ASK " $$ -1 0 >$F\n" ASK
        " $1 1.5 9 >$F\necho nonsense >$F\nsleep 0.5\necho fine\nEOS\n"
        "$D --nproc_per_node=1 sh w $S; E=$?; kill -0 $S && echo alive; kill $S; [ ! -e fifo ] && exit $E");
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
    cr_assert_str_eq(r.out, "fine\nalive\n");
    cr_assert_not_null(strstr(r.err, "a process that is none of this job's"), "%s", r.err);
    cr_assert_not_null(strstr(r.err, "no request of torch.distributed.elastic.timer"), "%s", r.err);
    run_free(&r);
}

Test(ddprun_torchrun, what_lies_in_the_place_of_the_fifo_is_left_alone)
{
    expect("export TORCHELASTIC_ENABLE_FILE_TIMER=1 TORCHELASTIC_TIMER_FILE=$W/f; echo mine >f; $D true; "
           "E=$?; cat f; "
           "exit $E",
           125, "mine\n", "cannot make the FIFO of the file timer");
}

Test(ddprun_torchrun, the_first_error_goes_to_the_file_that_it_was_given_itself)
{
    expect("cat >w <<'EOS'\n[ $RANK = 0 ] || exec sleep 60\nprintf '{\"message\": {\"message\": \"E: no\"}}' "
           ">$TORCHELASTIC_ERROR_FILE\nexit 3\nEOS\n"
           "TORCHELASTIC_ERROR_FILE=$W/mine $D --nproc_per_node=2 sh w; E=$?; cat mine; exit $E",
           3, "{\"message\":{\"message\":\"E: no\",\"errorCode\":3}}\n", "E: no");
    expect("TORCHELASTIC_ERROR_FILE=$W/mine $D --nproc_per_node=1 false; ls", 0, "torchrun\n", NULL);
}

Test(ddprun_torchrun, an_ipv6_address_may_have_brackets)
{
    expect("$D --nproc_per_node=1 --master_addr=[::1] --dry_run true | grep MASTER_ADDR", 0,
           "        MASTER_ADDR=::1\n", NULL);
}

Test(ddprun_torchrun, what_cannot_be_is_exit_2_and_a_way_out)
{
    expect("$D --rdzv-backend=etcd-v2 true", 2, "", "ddprun brings its own store");
    expect("$D --event-log-handler=mine true", 2, "", "--events=FILE");
    expect("$D --logs-specs=mine true", 2, "", "--log_file=PATTERN");
    expect("$D --nproc-per-node=xpu true", 2, "", "say the number");
    expect("CUDA_VISIBLE_DEVICES= $D --numa-binding=node true", 2, "", "taskset");
}

Test(ddprun_torchrun, what_does_nothing_is_said)
{
    expect("$D --standalone --rdzv-endpoint=localhost:0 --nproc_per_node=1 --monitor-interval=5 echo ran", 0,
           "ran\n", "--rdzv_endpoint does nothing here: --standalone");
    expect("$D --duplicate-stdout-filters=a --nproc_per_node=1 echo ran", 0, "ran\n",
           "lines that --tee writes");
}

Test(ddprun_torchrun, bash_completes_its_options)
{
    const char *argv[] = { "bash", "-c",
                           ". <(\"$0\" --print-completion=bash); COMP_WORDS=(ddprun --rdzv_e); COMP_CWORD=1\n"
                           "_ddprun 2>/dev/null; echo \"${COMPREPLY[@]}\"",
                           bin("ddprun"), NULL };
    struct run_result r = run_command(argv, NULL);
    cr_assert_str_eq(r.out, "--rdzv_endpoint=\n", "%s", r.err);
    run_free(&r);
}
