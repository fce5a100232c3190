# package.mk -- wheels, tarballs and the image, for machines without a compiler. Included by the Makefile.
ARCHS := x86_64 aarch64
ARCH  ?= $(ARCHS)
HOST_ARCH := $(filter $(ARCHS),$(shell uname -m))
# Every file in a package has the time of the commit, so that a second build gives the same bytes.
EPOCH = SOURCE_DATE_EPOCH=$(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null),$(shell date -d '$(DATE)' +%s))

fetch-package: | $(BUILD)/deps-package
	@BUILD=$(BUILD) scripts/package/fetch.sh
$(addprefix portable-,$(ARCHS)): portable-%: $(filter-out $(EXAMPLES),$(PROGRAMS)) fetch-package
	+@BUILD=$(BUILD) scripts/package/build.sh $*

wheel: $(addprefix wheel-,$(ARCH)) ## the wheels into build/dist, for ARCH= (x86_64 aarch64)
$(addprefix wheel-,$(ARCHS)): wheel-%: portable-%
	@BUILD=$(BUILD) $(EPOCH) scripts/package/wheel.sh $* $(VERSION)

tarball: $(addprefix tarball-,$(ARCH)) ## the same programs to unpack anywhere
$(addprefix tarball-,$(ARCHS)): tarball-%: portable-%
	@BUILD=$(BUILD) $(EPOCH) scripts/package/tarball.sh $* $(VERSION)

image: portable-$(HOST_ARCH) ## an image FROM scratch to copy from, as an OCI archive
	+@BUILD=$(BUILD) scripts/package/build.sh $(HOST_ARCH) musl
	@BUILD=$(BUILD) $(EPOCH) scripts/package/image.sh $(HOST_ARCH) $(VERSION)

packages: ## build and check all packages, bare Debian 11, 12 and 13 included (minutes, needs root); prints a table
	+@BUILD=$(BUILD) VERSION=$(VERSION) $(EPOCH) scripts/package/check.sh $(ARCH)

.PHONY: wheel tarball image packages fetch-package $(foreach what,portable wheel tarball,$(addprefix $(what)-,$(ARCHS)))
