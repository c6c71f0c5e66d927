#!/bin/sh
# Called by cargo in rustc's place (RUSTC_WRAPPER): `rustc.sh RUSTC ARGUMENTS`. What libFuzzer needs of the compiler, a
# counter per edge and calls at comparisons, goes into the product, the targets (which have the generic code that they use)
# and crates that read bytes for the product; other dependencies stay as every other build has them, so they are built once.
# Each package named here needs a profile of its own in Cargo.toml: cargo knows nothing of these options. All are stable.
case " $* " in
*" --crate-name build_script_build "*) exec "$@" ;;
esac
case "$CARGO_PKG_NAME" in
jeprobe | jeprobe-fuzz | fancy-regex | httparse)
    exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares
    ;;
esac
exec "$@"
