# ddprun: `make help` lists the targets; CONTRIBUTING.md explains the layers.
#
# There is one Makefile for all programs. The compiler finds the headers of each object (-MMD), and each object depends
# on the compiler flags ($(BUILD)/flags), so no change needs a `make clean`. A sanitizer build calls this Makefile again
# with a separate build folder, so `make -j8 test asan ubsan` is safe.

BUILD   ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
LIBDIR  ?= $(PREFIX)/lib
MANDIR  ?= $(PREFIX)/share/man
T       ?=
SANITIZE ?=
FUZZ_SECONDS ?= 60

ifeq ($(origin CC),default)
CC := gcc
endif
CFLAGS ?= -O2 -g
# Warnings are errors only with WERROR=1, which scripts/test.sh sets. A newer compiler must not break a user's build.
WERROR ?=
WARN   := -std=c11 -Wall -Wextra $(if $(filter 1,$(WERROR)),-Werror) -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wformat=2
# Debian's hardening flags that this compiler accepts for this machine. FORTIFY needs optimization, and its level 3
# needs a recent C library. With a sanitizer FORTIFY is off, because the sanitizer checks more. A level in CFLAGS or
# CPPFLAGS replaces the level here.
accepts  = $(strip $(shell printf '\043include <stdio.h>\n' | \
           $(CC) $(CFLAGS) -Werror $(1) -x c -c - -o /dev/null 2>/dev/null && echo $(1)))
fortify  = $(if $(filter-out -O0,$(lastword $(filter -O%,$(CFLAGS)))),$(call accepts,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$(1)))
FORTIFY := $(if $(SANITIZE)$(findstring _FORTIFY_SOURCE,$(CFLAGS) $(CPPFLAGS)),,$(or $(call fortify,3),$(call fortify,2)))
HARDEN  := $(FORTIFY) $(foreach flag,-fstack-protector-strong -fstack-clash-protection -fcf-protection \
           -mbranch-protection=standard,$(call accepts,$(flag)))
HARDEN_LD := -Wl,-z,relro -Wl,-z,now
# Reductions and optimizers must give the same bits in every build. So the compiler may not fuse a multiplication with
# an addition.
ALL_CFLAGS  = $(WARN) $(HARDEN) $(CFLAGS) -ffp-contract=off -fPIC -fvisibility=hidden -pthread -D_GNU_SOURCE \
              -Iinclude -Irendezvous -Ilauncher -Iworker -I. $(CPPFLAGS) $(SANITIZE)
ALL_LDFLAGS = -pthread $(HARDEN_LD) $(SANITIZE) $(LDFLAGS)

# The version is defined once, in include/ddp/context.h.
VERSION := $(shell sed -En 's/^.define DDP_VERSION_(MAJOR|MINOR|PATCH) +//p' include/ddp/context.h | paste -sd.)
DATE    := $(shell sed -n 's/^.define DDP_VERSION_DATE  *"\([^"]*\)".*/\1/p' include/ddp/context.h)
# The commit that --version prints. For the sources of a tarball or a package, `make COMMIT=...` sets it.
ifeq ($(COMMIT),)
COMMIT  := $(if $(wildcard .git),$(shell git rev-parse --short=12 HEAD 2>/dev/null))
endif
SONAME  := libddp.so.$(firstword $(subst ., ,$(VERSION)))
CUDA_SONAME := $(subst libddp,libddp_cuda,$(SONAME))

# `make V=1` shows the commands. Otherwise each command prints one short line.
ifeq ($(V),)
Q   := @
say  = @printf '  %-7s %s\n' $(1) '$(2)'
else
Q   :=
say  = @:
endif

# --- what is built from what ----------------------------------------------------------------------------------------
BASE       := $(wildcard rendezvous/base/*.c rendezvous/record/*.c)
RDZV_MAINS := rendezvous/server/main.c rendezvous/ctl/ddpctl.c
RDZV       := $(filter-out $(RDZV_MAINS) $(BASE),$(wildcard rendezvous/*/*.c))
LAUNCHER   := $(wildcard launcher/*/*.c)
WORKER     := $(wildcard $(addsuffix /*.c,$(addprefix worker/,core reducer checkpoint data cpu)))
WORKER_CUDA := $(wildcard worker/cuda/*.c)
BENCH_CORE := worker/bench/bench_core.c
# Fuzz programs use none of these folders, so their build omits them. A fuzz program that needs such a folder fails to
# link.
NOT_FUZZED := $(if $(findstring fuzzer,$(SANITIZE)),$(addsuffix /%,$(addprefix launcher/,agent contain net node remote report) \
              rendezvous/server worker/cuda worker/train/cuda))
RDZV        := $(filter-out $(NOT_FUZZED),$(RDZV))
LAUNCHER    := $(filter-out $(NOT_FUZZED),$(LAUNCHER))
WORKER_CUDA := $(filter-out $(NOT_FUZZED),$(WORKER_CUDA))
TRAIN      := $(filter-out $(NOT_FUZZED) worker/train/main.c worker/train/make_data.c,$(wildcard worker/train/*.c worker/train/*/*.c))
# libddp contains the store client, the table of requests and base/, and nothing else of the server.
LIBDDP     := $(WORKER) $(wildcard rendezvous/client/*.c) rendezvous/store/ops.c $(filter-out %/log.c %/completion.c %/rank_set.c %/stacks.c,$(BASE))
# libddp loads libddp_cuda and passes the functions that libddp_cuda needs. Files without state that both libraries use
# are linked into both.
LIBDDP_CUDA := $(WORKER_CUDA) worker/core/call.c rendezvous/base/error.c rendezvous/base/clock.c
# The loader of NVIDIA's libraries, which libddp_cuda and `train` use.
TRAIN_CUDA := worker/cuda/gpu.c
FAKE_GPU   := $(wildcard tests/fake/*.c)
TEST_LIB   := $(wildcard tests/lib/*.c)
TEST_SRC   := $(wildcard tests/unit/*/test_*.c tests/sim/test_*.c tests/socket/test_*.c tests/e2e/test_*.c)
# Jobs on several simulated hosts (network namespaces), which take minutes: `make nodes`.
NODES_SRC  := $(wildcard tests/nodes/test_*.c)
SOAK_SRC   := tests/nodes/soak.c
PROG_SRC   := $(wildcard tests/prog/*.c)
# Programs that start thousands of jobs.
HARNESS_MAIN := $(addprefix tests/survivors/,survivors.c launches.c reuse.c)
HARNESS_LIB  := $(filter-out $(HARNESS_MAIN),$(wildcard tests/survivors/*.c)) tests/lib/procstat.c
BENCH_SRC  := $(wildcard tests/bench/bench_*.c)
BENCH_LIB  := $(filter-out $(BENCH_SRC),$(wildcard tests/bench/*.c))
FUZZ_SRC   := $(wildcard tests/fuzz/fuzz_*.c)
ALL_SRC    := $(BASE) $(RDZV) $(LAUNCHER) $(WORKER) $(WORKER_CUDA) $(FAKE_GPU) $(BENCH_CORE) worker/bench/main.c $(TRAIN) $(TEST_LIB) $(TEST_SRC) $(NODES_SRC) $(SOAK_SRC) $(PROG_SRC) $(BENCH_SRC) \
              $(BENCH_LIB) $(HARNESS_MAIN) $(HARNESS_LIB) $(FUZZ_SRC) $(RDZV_MAINS) launcher/main.c worker/train/main.c worker/train/make_data.c

obj  = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
bin  = $(patsubst %.c,$(BUILD)/%,$(1))
# Suites whose path contains a word of $(T): `make test T=store`, `make test T="wire hub"`.
pick = $(if $(T),$(foreach t,$(1),$(if $(strip $(foreach w,$(T),$(findstring $(w),$(t:$(BUILD)/%=%)))),$(t))),$(1))

# Packages for other machines omit the examples, which need OpenBLAS.
EXAMPLES ?= $(BUILD)/train $(BUILD)/make-data
PROGRAMS := $(BUILD)/ddprun $(BUILD)/ddp-rendezvous $(BUILD)/ddpctl $(BUILD)/ddp-bench $(EXAMPLES)
# The build for this machine. Its programs print the manual pages and completions.
TOOLS    ?= $(BUILD)
LIBS     := $(BUILD)/libddp.a $(BUILD)/libddp.so $(BUILD)/libddp_cuda.so
FAKE_LIB := $(BUILD)/tests/fake/libfake_gpu.so
# GPU kernels of train, one file for each type of values. Without nvcc, `train --device cuda` reports that they are
# missing. Sanitizers do not check the kernels.
NVCC    := $(if $(SANITIZE),,$(firstword $(wildcard $(addsuffix /bin/nvcc,$(CUDA_HOME))) $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc)))
KERNELS := $(if $(NVCC),$(foreach type,f32 bf16 f16,$(BUILD)/train_kernels.$(type).fatbin))
# Architectures with compiled code. Newer GPUs compile the PTX of the last architecture at load time.
KERNEL_ARCHS ?= 80 90
TEST_BIN := $(call bin,$(TEST_SRC))
NODES_BIN := $(call bin,$(NODES_SRC))
PROG_BIN := $(call bin,$(PROG_SRC) $(HARNESS_MAIN))

.DEFAULT_GOAL := all
all: $(PROGRAMS) $(LIBS) $(KERNELS) ## build everything into build/

# --- objects, libraries, programs -----------------------------------------------------------------------------------
# These files are written only when their content changes, because objects depend on the date of the flags, and
# libraries depend on the date of the list of sources. So a library loses the object of a removed source. Four programs
# depend on the date of the commit.
$(BUILD)/flags:   TEXT = $(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) ; $(TEST_FLAGS) ; $(REDUCE_FLAGS) ; $(OPTIM_FLAGS) ; $(CONV_FLAGS)
$(BUILD)/sources: TEXT = $(sort $(ALL_SRC))
$(BUILD)/obj/commit.c: TEXT = extern const char build_commit[]; const char build_commit[] = "$(or $(COMMIT),unknown)";
$(BUILD)/flags $(BUILD)/sources $(BUILD)/obj/commit.c: FORCE
	$(shell mkdir -p $(@D))$(file >$@.new,$(TEXT))
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

# Check each group of packages once, before the first object. The error lists all missing packages. `DEPS=` checks
# nothing.
DEPS ?= $(BUILD)/deps-build
$(BUILD)/deps-%: scripts/packages.sh scripts/check-deps.sh
	@mkdir -p $(@D)
	@CC='$(CC)' CPPFLAGS='$(CPPFLAGS)' LDFLAGS='$(LDFLAGS)' scripts/check-deps.sh $*
	@touch $@

$(BUILD)/obj/%.o: %.c $(BUILD)/flags | $(DEPS)
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

TEST_FLAGS := -Itests/lib
# Fuzz programs call none of the loops that need -O3.
O3 := $(if $(findstring fuzzer,$(SANITIZE)),,-O3)
# The loops over gradients are written for the vectorizer, which needs -O3 and must be free to evaluate both sides of a
# comparison. gcc would replace a loop over 256 bytes by a call of memcpy, which takes twice the time. clang does not
# replace such loops, and lacks the flag.
REDUCE_FLAGS := $(O3) -fno-trapping-math $(call accepts,-fno-tree-loop-distribute-patterns)
# Optimizers, layers and similar loops: square roots do not have to set errno.
OPTIM_FLAGS := $(O3) -fno-trapping-math -fno-math-errno
# The sums of a convolution may be fused, as in BLAS. This halves the number of instructions.
CONV_FLAGS := -ffp-contract=fast
# The flag is private, because $(BUILD)/flags must be the same for every object that depends on this file.
$(BUILD)/obj/tests/%: private ALL_CFLAGS += $(TEST_FLAGS)
# Tests run only once, so optimization would take more time than it saves: test_ddprun_files.c compiles in 0.4 s instead
# of 1.3 s. UndefinedBehaviorSanitizer would take a fifth more time. This sanitizer is only for the product, which some
# tests include. Hardening of tests takes time, too, and AddressSanitizer checks more of a test's stack. The checks of
# AddressSanitizer compile faster as calls.
WITH_PRODUCT := $(if $(findstring undefined,$(SANITIZE)),$(call obj,$(shell grep -lE '^.include "[a-z_0-9/]+\.c"' $(TEST_SRC))))
TEST_ASAN := $(if $(findstring address,$(SANITIZE)),$(call accepts,--param asan-instrumentation-with-call-threshold=0))
TEST_OBJ  := $(addprefix $(BUILD)/obj/tests/,$(addsuffix /%,unit socket e2e sim))
$(TEST_OBJ): private HARDEN :=
$(TEST_OBJ): private ALL_CFLAGS += -O0 -g1 -U_FORTIFY_SOURCE $(TEST_ASAN) \
	$(if $(findstring undefined,$(SANITIZE)),$(if $(filter $@,$(WITH_PRODUCT)),,-fno-sanitize=undefined))
$(call obj,$(addprefix worker/reducer/,reduce.c values.c)): private ALL_CFLAGS += $(REDUCE_FLAGS)
$(call obj,$(addprefix worker/reducer/,optim.c amp.c batchnorm.c) $(wildcard worker/train/layers/*.c)): private ALL_CFLAGS += $(OPTIM_FLAGS)
$(BUILD)/obj/worker/train/layers/conv_tile.o: private ALL_CFLAGS += $(CONV_FLAGS)
# GCC 12 aligns the frames of AddressSanitizer to 32 bytes (GCC bug 110027), so AVX-512 stores, which need an alignment
# of 64 bytes, crash.
$(call obj,worker/train/layers/conv_tile.c tests/unit/train/test_resnet_layers.c): private ALL_CFLAGS += \
	$(if $(findstring address,$(SANITIZE)),-fno-sanitize=address)
# Kernels access one block of memory as bytes, words and values. They often access thread-local variables, and a
# descriptor of such a variable takes less time than a call. ThreadSanitizer does not support fibers.
TLS_FLAGS := $(call accepts,-mtls-dialect=gnu2)
FIBERS := $(call obj,tests/fake/shim.c $(wildcard tests/fake/kernels_*.c))
$(FIBERS): private ALL_CFLAGS += $(if $(SANITIZE),,-O3) -fno-strict-aliasing $(TLS_FLAGS)
$(FIBERS): private override SANITIZE := $(filter-out -fsanitize=thread,$(SANITIZE))
$(call obj,$(filter-out $(HARNESS_LIB),$(TEST_LIB)) $(TEST_SRC) $(NODES_SRC) $(SOAK_SRC)): | $(BUILD)/deps-test

# ddpctl contains the page that draws a timeline. The page is ASCII.
TIMELINE_PAGE := $(BUILD)/obj/rendezvous/ctl/timeline_page
$(TIMELINE_PAGE).c: rendezvous/ctl/timeline.html
	@mkdir -p $(@D)
	$(Q){ echo 'extern const char timeline_page[];'; echo 'const char timeline_page[] = {'; \
		od -An -v -tx1 $< | sed 's/ \(..\)/0x\1,/g'; echo '0};'; } >$@
$(TIMELINE_PAGE).o $(BUILD)/obj/commit.o: %.o: %.c $(BUILD)/flags | $(DEPS)
	$(Q)$(CC) $(ALL_CFLAGS) -c $< -o $@

$(BUILD)/librendezvous.a: $(call obj,$(RDZV) $(BASE)) $(TIMELINE_PAGE).o
$(BUILD)/liblauncher.a:   $(call obj,$(LAUNCHER))
$(BUILD)/libtrain.a:      $(call obj,$(TRAIN) $(TRAIN_CUDA))
$(BUILD)/libddp.a:        $(call obj,$(LIBDDP))
$(BUILD)/libddp_cuda.a:   $(call obj,$(WORKER_CUDA))
$(BUILD)/libddpbench.a:   $(call obj,$(BENCH_CORE))
$(BUILD)/libtest.a:       $(call obj,$(TEST_LIB))
$(BUILD)/lib%.a: $(BUILD)/sources
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)

$(BUILD)/libddp.so: $(call obj,$(LIBDDP)) $(BUILD)/sources worker/exports.map
	$(call say,LD,$@)
	$(Q)$(CC) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=worker/exports.map $(ALL_LDFLAGS) \
		$(filter %.o,$^) -o $@ -lcjson -lz -lm -ldl
	$(Q)ln -sf libddp.so $(BUILD)/$(SONAME)

# NVIDIA's libraries are not linked but loaded by worker/cuda/. The library exports one function.
$(BUILD)/libddp_cuda.so: $(call obj,$(LIBDDP_CUDA)) $(BUILD)/sources worker/cuda/exports.map
	$(call say,LD,$@)
	$(Q)$(CC) -shared -Wl,-soname,$(CUDA_SONAME) -Wl,--version-script=worker/cuda/exports.map $(ALL_LDFLAGS) \
		$(filter %.o,$^) -o $@ -ldl
	$(Q)ln -sf libddp_cuda.so $(BUILD)/$(CUDA_SONAME)
$(FAKE_LIB): $(call obj,$(FAKE_GPU)) $(BUILD)/sources
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) -shared $(ALL_LDFLAGS) $(filter %.o,$^) -o $@ -lm
	$(Q)mkdir -p $(@D)/nvml && ln -sf ../libfake_gpu.so $(@D)/nvml/libnvidia-ml.so.1

# Each module of the fake driver only contains its name.
FAKE_KERNELS := $(foreach type,f32 bf16 f16,$(BUILD)/tests/fake/train_kernels.$(type).fatbin)
$(FAKE_KERNELS): $(BUILD)/tests/fake/train_kernels.%.fatbin: | $(FAKE_LIB)
	$(Q)printf 'fake %s' $* >$@

# If nvcc fails, for example because it does not support the host compiler, the build must not fail.
$(BUILD)/train_kernels.%.fatbin: $(wildcard worker/train/cuda/*.cu) worker/train/cuda/kernels.h Makefile
	@mkdir -p $(@D)
	$(call say,NVCC,$@)
	$(Q)$(NVCC) -Iworker -fatbin -O3 -DVALUE_$(shell echo $* | tr a-z A-Z) $(foreach arch,$(KERNEL_ARCHS),-gencode \
		arch=compute_$(arch),code=sm_$(arch)) $(addprefix -gencode arch=compute_,$(addsuffix \
		$(comma)code=compute_$(lastword $(KERNEL_ARCHS)),$(lastword $(KERNEL_ARCHS)))) worker/train/cuda/kernels.cu -o $@ || \
		{ rm -f $@; echo "$(NVCC) has not built $@: train --device cuda will miss it"; }
comma := ,

# Each shared library costs 0.2 ms at every start of ddprun, and --ship copies ddprun to hosts that may lack libraries.
# So libraries are linked statically if their archives are installed. Debian has no archive of cJSON. `make LIBUV=-luv
# LIBSODIUM=-lsodium LIBCJSON=-lcjson` uses the shared libraries.
LIBUV ?= $(or $(filter /%,$(shell $(CC) -print-file-name=libuv_a.a)),-luv)
LIBSODIUM ?= $(or $(filter /%,$(shell $(CC) -print-file-name=libsodium.a)),-lsodium)
LIBCJSON ?= $(or $(filter /%,$(shell $(CC) -print-file-name=libcjson.a)),-lcjson)

# Guardian and agent call mostly the same functions. With binding before the fork, each function is looked up once
# instead of twice. One segment for code and constants saves two mappings at start, fork and exit. Builds with
# sanitizers have separate segments, because ThreadSanitizer needs a file for each segment of code and constants.
ONE_SEGMENT ?= $(if $(SANITIZE),,-Wl,-z,noseparate-code)
$(BUILD)/ddprun: private ALL_LDFLAGS += $(ONE_SEGMENT)

LINK = $(Q)$(CC) -pie $(ALL_LDFLAGS) $(filter %.o,$^) $(filter %.a,$^) -o $@

$(addprefix $(BUILD)/,ddprun ddp-rendezvous ddpctl ddp-bench): $(BUILD)/obj/commit.o
$(BUILD)/ddprun: $(call obj,launcher/main.c) $(BUILD)/liblauncher.a $(BUILD)/librendezvous.a
	$(call say,LD,$@)
	$(LINK) $(LIBUV) $(LIBSODIUM) $(LIBCJSON) -ldl
$(BUILD)/ddp-rendezvous: $(call obj,rendezvous/server/main.c) $(BUILD)/librendezvous.a
	$(call say,LD,$@)
	$(LINK) -luv -lsodium -lcjson
$(BUILD)/ddpctl: $(call obj,rendezvous/ctl/ddpctl.c) $(BUILD)/liblauncher.a $(BUILD)/librendezvous.a
	$(call say,LD,$@)
	$(LINK) -luv -lsodium -lcjson
$(BUILD)/train: $(call obj,worker/train/main.c) $(BUILD)/libtrain.a $(BUILD)/libddp.a
	$(call say,LD,$@)
	$(LINK) -lopenblas -lcjson -lz -lm -ldl
$(BUILD)/ddp-bench: $(call obj,worker/bench/main.c) $(BUILD)/libddpbench.a $(BUILD)/libddp.a
	$(call say,LD,$@)
	$(LINK) -lcjson -lz -lm -ldl
$(BUILD)/make-data: $(call obj,worker/train/make_data.c) $(BUILD)/libtrain.a $(BUILD)/libddp.a
	$(call say,LD,$@)
	$(LINK) -lopenblas -lcjson -lz -lm -ldl

# --- tests: one program per file, tests/LAYER/test_NAME.c -> build/tests/LAYER/test_NAME; unit tests in a folder for each
# of the product
PRODUCT_LIBS := $(BUILD)/liblauncher.a $(BUILD)/libtrain.a $(BUILD)/libddp_cuda.a $(BUILD)/libddpbench.a $(BUILD)/libddp.a $(BUILD)/librendezvous.a
# A test that does not call OpenBLAS must not load OpenBLAS, because Criterion starts a process for each test.
PRODUCT_LDLIBS := -Wl,--as-needed -luv -lsodium -lcjson -lopenblas -lz -lm -ldl
# Criterion needs libgit2 only to print the difference of two strings, which no test requests. Loading libgit2 and its
# 17 libraries takes longer than most tests. A test that is linked with this stub does not load these libraries.
GIT2      := $(shell objdump -p "$$($(CC) -print-file-name=libcriterion.so)" 2>/dev/null | sed -n 's/.*NEEDED *\(libgit2\.so.*\)/\1/p')
GIT2_STUB := $(addprefix $(BUILD)/tests/lib/,$(GIT2))
$(GIT2_STUB):
	@mkdir -p $(@D)
	$(Q)nm -D --undefined-only "$$($(CC) -print-file-name=libcriterion.so)" | sed -n 's/.* \(git_[a-z0-9_]*\)$$/int \1(void);int \1(void){return -1;}/p' | \
		$(CC) -x c - -shared -fPIC -Wl,-soname,$(@F) -o $@

$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(BUILD)/libtest.a $(PRODUCT_LIBS) $(GIT2_STUB)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(LINK) -Wl,--no-as-needed $(GIT2_STUB) $(addprefix -Wl$(comma)-rpath$(comma),$(dir $(abspath $(GIT2_STUB)))) -lcriterion $(PRODUCT_LDLIBS)
# The test replaces malloc and its family, and makes the n-th call fail.
$(BUILD)/tests/unit/hub/test_hub_nomem: private ALL_LDFLAGS += \
	-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=free
# The test makes thread creation fail although cores are free.
$(BUILD)/tests/socket/test_reducer_faults: private ALL_LDFLAGS += -Wl,--wrap=pthread_create,--wrap=sched_getaffinity
# The test chooses which users the kernel rejects.
$(BUILD)/tests/socket/test_listener: private ALL_LDFLAGS += -Wl,--wrap=listen
# The test chooses the host name.
$(BUILD)/tests/socket/test_store_server: private ALL_LDFLAGS += -Wl,--wrap=gethostname
# The test simulates the disk.
$(BUILD)/tests/unit/checkpoint/test_ckpts: private ALL_LDFLAGS += \
	-Wl,--wrap=renameat,--wrap=sys_renameat2,--wrap=fsync,--wrap=openat,--wrap=pread,--wrap=readdir
# Programs that tests start as workers. They do not use Criterion, so they also run under ThreadSanitizer.
$(BUILD)/tests/prog/%: $(BUILD)/obj/tests/prog/%.o $(PRODUCT_LIBS)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(LINK) $(PRODUCT_LDLIBS)
# These programs are built without sanitizers. worker and survivor catch signals, and ThreadSanitizer loses some of
# these signals. LeakSanitizer stops 256 torn_writers at their end, and on a busy machine ddprun would report that a
# debugger has stopped these workers.
$(foreach prog,worker survivor torn_writer,$(BUILD)/tests/prog/$(prog) $(BUILD)/obj/tests/prog/$(prog).o): private override SANITIZE =
# The program train with calls that the test replaces.
$(BUILD)/tests/prog/train_dies: $(call obj,worker/train/main.c)
$(BUILD)/tests/prog/train_dies: private ALL_LDFLAGS += -Wl,--wrap=ddp_reducer_forward,--wrap=ddp_reducer_ready \
	-Wl,--wrap=ddp_reducer_finish,--wrap=ddp_ckpts_save,--wrap=fsync,--wrap=renameat
$(BUILD)/libharness.a: $(call obj,$(HARNESS_LIB))
$(BUILD)/tests/survivors/%: $(BUILD)/obj/tests/survivors/%.o $(BUILD)/libharness.a $(PRODUCT_LIBS)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(LINK) $(PRODUCT_LDLIBS)
$(BUILD)/libbench.a: $(call obj,$(BENCH_LIB))
$(BUILD)/tests/bench/%: $(BUILD)/obj/tests/bench/%.o $(BUILD)/libbench.a $(BUILD)/libharness.a $(PRODUCT_LIBS)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(LINK) $(PRODUCT_LDLIBS)

test-programs: all $(TEST_BIN) $(PROG_BIN) $(FAKE_LIB) $(FAKE_KERNELS)

test: test-programs ## build and run the tests of one host; `make test T="store cli"` for suites with such a word in their path
	@BUILD=$(BUILD) scripts/run-tests.sh $(call pick,$(TEST_BIN)) $(call pick,$(wildcard tests/shell/test_*.sh))

# -O1 and frame pointers keep the sanitizers' stacks readable. -g1 adds functions and lines, and compiles faster than
# -g. In code that a sanitizer has rewritten, gcc reports false uses of uninitialized values (see its manual). The plain
# build keeps this warning.
SAN_CFLAGS := -O1 -g1 -fno-omit-frame-pointer
GCC_SAN_CFLAGS := $(SAN_CFLAGS) $(if $(findstring clang,$(CC)),,-Wno-maybe-uninitialized)

asan: ## all tests under AddressSanitizer and LeakSanitizer
	+@$(MAKE) --no-print-directory BUILD=$(BUILD)/asan CFLAGS='$(GCC_SAN_CFLAGS)' SANITIZE=-fsanitize=address sanitized-test

ubsan: ## all tests under UndefinedBehaviorSanitizer
	+@$(MAKE) --no-print-directory BUILD=$(BUILD)/ubsan CFLAGS='$(GCC_SAN_CFLAGS)' \
		SANITIZE='-fsanitize=undefined -fno-sanitize-recover=all' sanitized-test

# One build with both sanitizers finds the same faults as two builds, in half of the time.
asan-ubsan: ## all tests under both at once
	+@$(ASAN_UBSAN) sanitized-test

ASAN_UBSAN = $(MAKE) --no-print-directory BUILD=$(BUILD)/asan-ubsan CFLAGS='$(GCC_SAN_CFLAGS)' \
	SANITIZE='-fsanitize=address,undefined -fno-sanitize-recover=undefined'
TSAN = $(MAKE) --no-print-directory BUILD=$(BUILD)/tsan CFLAGS='$(GCC_SAN_CFLAGS)' SANITIZE=-fsanitize=thread
# clang compiles four times as long with -O1 as with -O0. For a run of seconds -O0 is enough: `make fuzz FUZZ_O=-O0`.
FUZZ_O ?= -O1
FUZZ = $(MAKE) --no-print-directory BUILD=$(BUILD)/fuzz CC=clang CFLAGS='$(SAN_CFLAGS:-O1=$(FUZZ_O))' \
	SANITIZE='-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all'

# scripts/test.sh builds these programs while other tests run, because those tests mostly wait.
asan-ubsan-programs:
	+@$(ASAN_UBSAN) test-programs
tsan-fuzz-programs:
	+@$(TSAN) tsan-programs
	+@$(FUZZ) fuzz-programs
sanitizer-builds: asan-ubsan-programs
	+@$(MAKE) --no-print-directory tsan-fuzz-programs

sanitized-test: test-programs
	@BUILD=$(BUILD) scripts/run-tests.sh $(call pick,$(TEST_BIN))

# Criterion cannot run under gcc's ThreadSanitizer (boxfort cannot map its arena there). So the other programs are built
# with ThreadSanitizer, and the end-to-end tests of the normal build start these programs. Two suites run at a time,
# because one suite may sleep while the other computes. More suites would miss deadlines of a terminal. TSAN_LEAVES
# lists suites that `make tsan` leaves out: suites in which only one thread works, suites whose threads other suites
# test, and suites that skip themselves.
TSAN_LEAVES := ddprun_plan ddpctl hangs hosts make_formats rendezvous_attacks torch_%
tsan: test-programs ## the end-to-end tests with all programs under ThreadSanitizer
	+@$(TSAN) tsan-programs
	@BUILD=$(BUILD) DDP_BUILD=$(BUILD)/tsan JOBS=2 TEST_JOBS=$$(nproc) scripts/run-tests.sh \
		$(call pick,$(filter-out $(addprefix $(BUILD)/tests/e2e/test_,$(TSAN_LEAVES)),$(filter $(BUILD)/tests/e2e/%,$(TEST_BIN))))

tsan-programs: $(PROGRAMS) $(PROG_BIN) $(LIBS) $(FAKE_LIB) $(FAKE_KERNELS)

fuzz: ## every tests/fuzz/fuzz_*.c under libFuzzer for FUZZ_SECONDS (60)
	@scripts/check-deps.sh build fuzz
	+@$(FUZZ) fuzz-programs
	@BUILD=$(BUILD)/fuzz FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/run-fuzz.sh $(call pick,$(FUZZ_SRC))

fuzz-programs: $(call bin,$(FUZZ_SRC))
$(BUILD)/tests/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(PRODUCT_LIBS)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(LINK) -fsanitize=fuzzer $(PRODUCT_LDLIBS)

purity: all ## the pure modules import no clock, socket, process, thread, file or GPU symbol; functions of one file are static; the layers include only downwards, no file or concept depends on itself, the texts are plain English, and tests compare sentences in golden files only
	@BUILD=$(BUILD) scripts/purity.sh
	@scripts/layers.sh
	@BUILD=$(BUILD) scripts/circles.sh
	@scripts/english.sh
	@scripts/wording.sh

survivors: all $(PROG_BIN) ## N (100) jobs of each kind of worker, fault and layer: does a process outlive them? PEERS=1: the other launchers
	@$(BUILD)/tests/survivors/survivors --rounds=$(or $(N),100) $(if $(PEERS),--peers) $(BUILD)/ddprun \
		$(BUILD)/tests/prog/survivor

launches: all $(PROG_BIN) ## N (10000) launches of workers that exit at once: counts hangs, zombies, leaked descriptors
	@$(BUILD)/tests/survivors/launches --launches=$(or $(N),10000) $(BUILD)/ddprun

hangs: all $(FAKE_LIB) $(BUILD)/tests/prog/still_worker ## check rank, line and reason of N (1) hangs of each class (W=) on one and two nodes (PYTHON= with py-spy, JOBS= at once); QUIET_MINUTES= runs healthy jobs instead, COST_SECONDS= measures an agent
	@BUILD=$(BUILD) PYTHON='$(PYTHON)' scripts/hangs.py $(if $(QUIET_MINUTES),--quiet=$(QUIET_MINUTES)) $(if $(COST_SECONDS),--cost=$(COST_SECONDS)) \
		$(or $(N),1) $(W)

nodes: test-programs $(NODES_BIN) ## jobs on several hosts (network namespaces, needs root) and every fault between them; minutes
	@BUILD=$(BUILD) TEST_TIMEOUT=1800 JOBS=$(or $(JOBS),1) scripts/run-tests.sh $(call pick,$(NODES_BIN))

# The e2e tests that need PyTorch, with the PyTorch of PYTHON and more repetitions than in `make test`.
PYTHON ?= /usr/bin/python3
interop: all $(filter $(BUILD)/tests/e2e/test_torch_%,$(TEST_BIN)) $(PROG_BIN) ## PyTorch programs and PyTorch's store client, on one node and through the gate of two hosts (root), with PYTHON=; RESTARTS= (100), OPERATIONS= (100000), SEED=
	@PYTHON='$(PYTHON)' BUILD=$(BUILD) RESTARTS='$(RESTARTS)' OPERATIONS='$(OPERATIONS)' SEED='$(SEED)' scripts/interop.sh \
		$(filter $(BUILD)/tests/e2e/test_torch_%,$(TEST_BIN))

frontends: $(BUILD)/ddprun ## accelerate, Lightning, DeepSpeed and others from PyPI: the same results under torchrun and ddprun, with PYTHON=
	@PYTHON='$(PYTHON)' BUILD=$(BUILD) tests/interop/frontends.sh

# A PyTorch 2.x that rejects the launcher's store. Only the suite of programs runs, because the store client of this
# PyTorch can only be used with a store of PyTorch.
interop-nolibuv: all $(BUILD)/tests/e2e/test_torch_programs ## the programs, with Debian 13's PyTorch in a separate root (build/trixie); needs root
	@BUILD=$(BUILD) RESTARTS='$(RESTARTS)' scripts/interop-nolibuv.sh $(BUILD)/tests/e2e/test_torch_programs

mutants: test-programs ## N (100) random faults in the product's code: prints those that the tests miss; SEED=, T= words of paths, SECONDS= (60) each
	@BUILD=$(BUILD) CC='$(CC)' scripts/mutants.py -n $(or $(N),100) $(if $(SEED),--seed $(SEED)) $(if $(SECONDS),--budget $(SECONDS)) $(T)

soak: all $(BUILD)/tests/nodes/soak ## N (200) jobs on several hosts with a random fault each; SEED=, JOBS= (4) at once; needs root
	@BUILD=$(BUILD) N='$(N)' SEED='$(SEED)' JOBS='$(JOBS)' scripts/soak.sh

bench: all $(call bin,$(BENCH_SRC)) $(PROG_BIN) ## measure against the peers; writes build/bench.md, build/bench.json and docs/benchmarks.md
	@BUILD=$(BUILD) PYTHON='$(PYTHON)' scripts/bench.sh
	@scripts/bench_docs.py $(BUILD)/bench.md

bench-docs: ## write docs/benchmarks.md from build/bench.md and the text in scripts/bench_docs.py
	@scripts/bench_docs.py $(BUILD)/bench.md

probes: all $(BUILD)/tests/bench/bench_probes $(PROG_BIN) ## compare every installed launcher: exit codes, survivors, torn lines, time
	@BUILD=$(BUILD) scripts/probes.sh $(N)

# --- style ----------------------------------------------------------------------------------------------------------
C_FILES = $(shell find include rendezvous launcher worker tests -name '*.[ch]' 2>/dev/null)

format: ## clang-format every C file
	@scripts/check-deps.sh format
	@clang-format -i $(C_FILES)

protocol: $(BUILD)/tests/prog/print_protocol ## print the tables in docs/protocol.md from ops.h and messages.h
	$(Q)for page in docs/protocol.md tests/fuzz/messages.dict; do \
		$< $$page >$(BUILD)/protocol.md && cp $(BUILD)/protocol.md $$page || exit 1; done

check-format: ## fail if `make format` would change a file
	@scripts/check-deps.sh format
	@clang-format --dry-run -Werror $(C_FILES)

# --- install --------------------------------------------------------------------------------------------------------
# ddprun prints its whole manual page. The other programs print only their options. Each option is a row of one table.
MAN1 := $(BUILD)/man/ddprun.1 $(BUILD)/man/ddpctl.1 $(BUILD)/man/ddp-bench.1
MAN3 := $(BUILD)/man/libddp.3
MAN8 := $(BUILD)/man/ddp-rendezvous.8
D    := $(DESTDIR)$(PREFIX)
MAN_HEAD := -e 's/@VERSION@/$(VERSION)/; s/@DATE@/$(DATE)/'

$(BUILD)/man/ddprun.1: $(TOOLS)/ddprun
	@mkdir -p $(@D)
	$(call say,MAN,$@)
	$(Q)$< --print_man >$@
$(BUILD)/man/ddp-bench.1: worker/bench/ddp-bench.1.in $(TOOLS)/ddp-bench
$(BUILD)/man/ddpctl.1: rendezvous/ctl/ddpctl.1.in $(TOOLS)/ddpctl
$(BUILD)/man/ddp-rendezvous.8: rendezvous/server/ddp-rendezvous.8.in $(TOOLS)/ddp-rendezvous
$(BUILD)/man/libddp.3: worker/libddp.3.in include/ddp/context.h
	@mkdir -p $(@D)
	$(call say,MAN,$@)
	$(Q)sed $(MAN_HEAD) $< >$@
$(BUILD)/man/%:
	@mkdir -p $(@D)
	$(call say,MAN,$@)
	$(Q)$(filter $(TOOLS)/%,$^) --help-man >$@.options
	$(Q)sed $(MAN_HEAD) -e '/^@OPTIONS@$$/{r $@.options' -e 'd}' $< >$@

man: $(MAN1) $(MAN3) $(MAN8) ## the manual pages, into build/man

# For each shell, its directory below share/ and the file name that it expects.
COMPLETIONS := bash-completion/completions/ddprun bash-completion/completions/ddpctl zsh/site-functions/_ddprun \
               zsh/site-functions/_ddpctl fish/vendor_completions.d/ddprun.fish fish/vendor_completions.d/ddpctl.fish

install: all man ## copy programs, library, headers, ddp.pc, man pages and completions to DESTDIR/PREFIX (/usr/local)
	$(call say,INSTALL,$(D))
	$(Q)install -d $(D)/bin $(D)/include/ddp $(D)/share/ddprun $(DESTDIR)$(LIBDIR)/pkgconfig \
		$(addprefix $(DESTDIR)$(MANDIR)/,man1 man3 man8)
	$(Q)install $(BUILD)/ddprun $(BUILD)/ddp-rendezvous $(BUILD)/ddpctl $(BUILD)/ddp-bench $(D)/bin
	$(Q)[ -z "$(EXAMPLES)" ] || install -D -t $(D)/libexec/ddprun $(EXAMPLES)
	$(Q)install -m 644 include/ddp/*.h $(D)/include/ddp
	$(Q)for kernels in $(BUILD)/train_kernels.*.fatbin; do \
		[ ! -f $$kernels ] || install -m 644 $$kernels $(D)/share/ddprun || exit 1; done
	$(Q)install -m 644 launcher/report.schema.json launcher/events.schema.json $(D)/share/ddprun
	$(Q)install -m 644 $(BUILD)/libddp.a $(DESTDIR)$(LIBDIR)
	$(Q)install -m 755 $(BUILD)/libddp.so $(DESTDIR)$(LIBDIR)/libddp.so.$(VERSION)
	$(Q)ln -sf libddp.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$(SONAME)
	$(Q)ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libddp.so
	$(Q)install -m 755 $(BUILD)/libddp_cuda.so $(DESTDIR)$(LIBDIR)/libddp_cuda.so.$(VERSION)
	$(Q)ln -sf libddp_cuda.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$(CUDA_SONAME)
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' scripts/ddp.pc.in \
		>$(DESTDIR)$(LIBDIR)/pkgconfig/ddp.pc
	$(Q)install -m 644 $(MAN1) $(DESTDIR)$(MANDIR)/man1
	$(Q)install -m 644 $(MAN3) $(DESTDIR)$(MANDIR)/man3
	$(Q)install -m 644 $(MAN8) $(DESTDIR)$(MANDIR)/man8
	$(Q)for file in $(COMPLETIONS); do \
		install -d "$(D)/share/$${file%/*}" && program=$${file##*/} program=$${program#_} && \
		$(TOOLS)/$${program%.fish} --print-completion "$${file%%[-/]*}" >"$(D)/share/$$file" || exit 1; done
	$(Q)[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

# --- packages -------------------------------------------------------------------------------------------------------
include scripts/package/package.mk

# Not part of install, because users must choose it over PyTorch's own torchrun. A torchrun of another package is never
# overwritten.
install-torchrun-alias: $(BUILD)/ddprun | $(filter install,$(MAKECMDGOALS)) ## ddprun under the second name torchrun, with torchrun's defaults
	$(call say,INSTALL,$(D)/bin/torchrun)
	$(Q)install -d $(D)/bin
	$(Q)cmp -s $(BUILD)/ddprun $(D)/bin/ddprun || install $(BUILD)/ddprun $(D)/bin
	$(Q)$(D)/bin/ddprun shim $(D)/bin >$(BUILD)/shim 2>&1 || { cat $(BUILD)/shim >&2; exit 1; }

deb: ## the Debian packages ddprun, libddp0, libddp-dev and ddprun-train, into build/dist/
	@BUILD='$(BUILD)' VERSION='$(VERSION)' DATE='$(DATE)' COMMIT='$(COMMIT)' scripts/package/deb.sh

uninstall: ## remove the files of `make install` with the same DESTDIR and PREFIX
	$(Q)[ "$$(readlink $(D)/bin/torchrun)" != ddprun ] || rm $(D)/bin/torchrun
	$(Q)rm -f $(addprefix $(D)/bin/,ddprun ddp-rendezvous ddpctl ddp-bench) \
		$(addprefix $(DESTDIR)$(LIBDIR)/,libddp.a libddp.so $(SONAME) libddp.so.$(VERSION) $(CUDA_SONAME) libddp_cuda.so.$(VERSION) pkgconfig/ddp.pc) \
		$(addprefix $(DESTDIR)$(MANDIR)/man1/,$(notdir $(MAN1))) \
		$(addprefix $(DESTDIR)$(MANDIR)/man3/,$(notdir $(MAN3))) \
		$(addprefix $(DESTDIR)$(MANDIR)/man8/,$(notdir $(MAN8))) $(addprefix $(D)/share/,$(COMPLETIONS))
	$(Q)rm -rf $(D)/libexec/ddprun $(D)/include/ddp $(D)/share/ddprun

# Stay on one file system, because a bare root in build/ (scripts/fresh-root.sh) may have /proc mounted.
clean: ## remove build/
	$(Q)rm -rf --one-file-system $(BUILD)

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile scripts/package/package.mk | expand -t 16

.PHONY: all protocol test test-programs asan ubsan asan-ubsan asan-ubsan-programs tsan-fuzz-programs sanitizer-builds sanitized-test tsan tsan-programs fuzz fuzz-programs purity survivors launches hangs nodes interop interop-nolibuv frontends mutants soak bench probes format \
	check-format man install install-torchrun-alias deb uninstall clean help FORCE
.SECONDARY:
.DELETE_ON_ERROR:
-include $(patsubst %.c,$(BUILD)/obj/%.d,$(ALL_SRC))
