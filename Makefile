# ddprun: `make help` lists what can be made. One Makefile, no recursion; every object lists its headers by itself (-MMD).

BUILD   ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
CC      ?= gcc
VERSION := $(shell sed -n 's/^\#define DDP_VERSION  *"\(.*\)"/\1/p' include/ddp/context.h)

SANITIZE ?=
OPT      ?= -O2 -g
WARN     := -std=c11 -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wformat=2
# Reductions and optimisers must give the same bits in every build: no fused multiply-add behind our back.
CFLAGS   += $(OPT) $(WARN) -ffp-contract=off -fPIC -fvisibility=hidden -pthread -D_GNU_SOURCE \
            -Iinclude -Irendezvous -Ilauncher -Iworker -Itests/lib $(SANITIZE)
LDFLAGS  += -pthread $(SANITIZE)

# --- what is built from what ----------------------------------------------------------------------------------------
BASE       := $(wildcard rendezvous/base/*.c)
RDZV_MAINS := rendezvous/main.c rendezvous/ddpctl.c
RDZV       := $(filter-out $(RDZV_MAINS),$(wildcard rendezvous/*.c))
LAUNCHER   := $(filter-out launcher/main.c,$(wildcard launcher/*.c))
WORKER     := $(wildcard worker/*.c)
TRAIN      := $(filter-out worker/train/main.c worker/train/make_data.c,$(wildcard worker/train/*.c))
# libddp carries the store client and the base it stands on, nothing else of the server.
LIBDDP     := $(WORKER) $(wildcard rendezvous/store_client.c) rendezvous/base/error.c rendezvous/base/buf.c rendezvous/base/clock.c

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

PROGRAMS := $(BUILD)/ddprun $(BUILD)/ddp-rendezvous $(BUILD)/ddpctl $(BUILD)/train $(BUILD)/make-data
LIBS     := $(BUILD)/libddp.a $(BUILD)/libddp.so

all: $(PROGRAMS) $(LIBS) ## build everything into build/

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c $< -o $@

$(BUILD)/librendezvous.a: $(call obj,$(RDZV) $(BASE))
	rm -f $@ && ar rcs $@ $^
$(BUILD)/liblauncher.a: $(call obj,$(LAUNCHER))
	rm -f $@ && ar rcs $@ $^
$(BUILD)/libtrain.a: $(call obj,$(TRAIN))
	rm -f $@ && ar rcs $@ $^
$(BUILD)/libddp.a: $(call obj,$(LIBDDP))
	rm -f $@ && ar rcs $@ $^
$(BUILD)/libddp.so: $(call obj,$(LIBDDP))
	$(CC) -shared -Wl,-soname,libddp.so.0 $(LDFLAGS) $^ -o $@ -lcjson -lz -lm

$(BUILD)/ddp-rendezvous: $(call obj,rendezvous/main.c) $(BUILD)/librendezvous.a
	$(CC) $(LDFLAGS) $^ -o $@ -luv -lcjson
$(BUILD)/ddpctl: $(call obj,rendezvous/ddpctl.c) $(BUILD)/librendezvous.a
	$(CC) $(LDFLAGS) $^ -o $@ -luv -lcjson
$(BUILD)/ddprun: $(call obj,launcher/main.c) $(BUILD)/liblauncher.a $(BUILD)/librendezvous.a
	$(CC) $(LDFLAGS) $^ -o $@ -luv -lcjson -ldl
$(BUILD)/train: $(call obj,worker/train/main.c) $(BUILD)/libtrain.a $(BUILD)/libddp.a
	$(CC) $(LDFLAGS) $^ -o $@ -lopenblas -lcjson -lz -lm
$(BUILD)/make-data: $(call obj,worker/train/make_data.c) $(BUILD)/libtrain.a $(BUILD)/libddp.a
	$(CC) $(LDFLAGS) $^ -o $@ -lopenblas -lcjson -lz -lm

# --- tests: one program per file, tests/LAYER/test_NAME.c -> build/tests/LAYER/test_NAME -----------------------------
TEST_LIB   := $(wildcard tests/lib/*.c)
TEST_SRC   := $(wildcard tests/unit/test_*.c tests/sim/test_*.c tests/socket/test_*.c tests/e2e/test_*.c)
TEST_BIN   := $(patsubst %.c,$(BUILD)/%,$(TEST_SRC))
PROG_BIN   := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/prog/*.c))

$(BUILD)/libtest.a: $(call obj,$(TEST_LIB))
	rm -f $@ && ar rcs $@ $^
$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(BUILD)/libtest.a $(BUILD)/liblauncher.a $(BUILD)/libtrain.a \
		$(BUILD)/libddp.a $(BUILD)/librendezvous.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $< $(BUILD)/libtest.a $(BUILD)/liblauncher.a $(BUILD)/libtrain.a $(BUILD)/libddp.a \
		$(BUILD)/librendezvous.a -o $@ -lcriterion -luv -lcjson -lopenblas -lz -lm -ldl

test-programs: $(TEST_BIN) $(PROG_BIN)
clean: ## remove build/
	rm -rf $(BUILD)
help: ## this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 16

.PHONY: all clean help test-programs
.SECONDARY:
-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
