/* torch.c -- see torch.h. */
#include "torch.h"

#include "run.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *torch_python(void)
{
    const char *python = getenv("DDP_PYTHON");
    return python != NULL && *python != '\0' ? python : "/usr/bin/python3";
}

/* Importing torch takes seconds, finding it or its version does not. */
static bool python_says(const char *program)
{
    const char *argv[] = { torch_python(), "-c", program, NULL };
    struct run_result r = run_command(argv, NULL);
    bool yes = r.exit_code == 0;
    run_free(&r);
    return yes;
}

void torch_skip_without(void)
{
    if (!python_says("import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"))
        cr_skip_test("skipped, because %s has no torch (package python3-torch)", torch_python());
}

void torch_skip_sanitized(void)
{
    if (bin_is_sanitized())
        cr_skip_test("skipped, because most of its time is PyTorch's, and the plain run has asked");
}

bool torch_is_old(void)
{
    return python_says("import importlib.util, os, runpy, sys\n"
                       "at = os.path.dirname(importlib.util.find_spec('torch').origin)\n"
                       "version = runpy.run_path(os.path.join(at, 'version.py'))['__version__']\n"
                       "sys.exit(not version.startswith('1.'))");
}

/* Asked of PyTorch itself, which takes seconds, and not of what ddprun looks at. */
bool torch_refuses_stores(void)
{
    return !torch_is_old() && python_says("import sys\n"
                                          "from torch.distributed import TCPStore\n"
                                          "try:\n"
                                          "    TCPStore('127.0.0.1', 0, None, True, use_libuv=True)\n"
                                          "except Exception as error:\n"
                                          "    sys.exit('without libuv' not in str(error))\n"
                                          "sys.exit(1)");
}

void torch_skip_without_libuv(void)
{
    torch_skip_without();
    if (torch_refuses_stores())
        cr_skip_test(
            "skipped, because the torch of %s was built without libuv, so its TCPStore refuses other stores",
            torch_python());
}

int torch_number(const char *name, int usual)
{
    const char *text = getenv(name);
    const int number = text != NULL ? atoi(text) : 0;
    if (number > 0)
        return number;
    return bin_is_sanitized() ? (usual + 9) / 10 : usual;
}

const char *const *torch_env(void)
{
    static char exec[512];
    static const char *const env[] = { exec, "OMP_NUM_THREADS=1", NULL };
    snprintf(exec, sizeof(exec), "PYTHON_EXEC=%s", torch_python());
    return env;
}
