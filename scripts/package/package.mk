# package.mk -- packages with programs for other machines than this one: scripts/package. Included by the Makefile.
ARCH ?= x86_64 aarch64
PORTABLE := $(addprefix portable-,$(ARCH))
# The date of every file in a package is that of the commit, so that a second build gives the same bytes.
export SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),$(shell date -d '$(DATE)' +%s))

$(PORTABLE): portable-%: $(filter-out $(EXAMPLES),$(PROGRAMS)) fetch-package
	+@BUILD=$(BUILD) scripts/package/build.sh $*
fetch-package: | $(BUILD)/deps-package
	@BUILD=$(BUILD) scripts/package/fetch.sh

wheel: $(addprefix wheel-,$(ARCH)) ## the wheels into build/dist, for ARCH= (x86_64 aarch64)
$(addprefix wheel-,$(ARCH)): wheel-%: portable-%
	@BUILD=$(BUILD) scripts/package/wheel.sh $* $(VERSION)

tarball: $(addprefix tarball-,$(ARCH)) ## the same programs to unpack anywhere
$(addprefix tarball-,$(ARCH)): tarball-%: portable-%
	@mkdir -p $(BUILD)/dist
	@tar -C $(BUILD)/package/$*/root --sort=name --owner=0 --group=0 --numeric-owner --mtime=@$(SOURCE_DATE_EPOCH) --mode=go-w \
		--transform='s,^\.,ddprun-$(VERSION)-linux-$*,S' -c . | gzip -n9 >$(BUILD)/dist/ddprun-$(VERSION)-linux-$*.tar.gz

# Of this machine's architecture, because a job runs in it.
image: ARCH := $(shell uname -m)
image: portable-$(shell uname -m) ## an image FROM scratch to copy from, as an OCI archive
	+@BUILD=$(BUILD) scripts/package/build.sh $(ARCH) musl
	@BUILD=$(BUILD) scripts/package/image.sh $(ARCH) $(VERSION)

.PHONY: wheel tarball image fetch-package $(PORTABLE) $(addprefix wheel-,$(ARCH)) $(addprefix tarball-,$(ARCH))
