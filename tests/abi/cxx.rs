//! The C++ operators: blocks, alignment, `bad_alloc`, new handlers, exceptions among threads.

use jeprobe_tests::facts::is;
use jeprobe_tests::target::facts_of;

#[test]
fn operators_handlers_and_exceptions() {
    facts_of("cxx_operators.cc", &["-Wno-alloc-size-larger-than"], &[]).check(&[
        is("new(0).usable", "8"),
        is("misaligned", "0").standard(),
        is("wide.misaligned", "0").standard(),
        is("new.fail", "bad_alloc").standard(),
        is("new[].fail", "bad_alloc").standard(),
        is("new.nothrow.fail", "null").standard(),
        is("new[].nothrow.fail", "null").standard(),
        is("new.aligned.fail", "bad_alloc").standard(),
        is("new[].aligned.fail", "bad_alloc").standard(),
        is("new.aligned.nothrow.fail", "null").standard(),
        is("new[].aligned.nothrow.fail", "null").standard(),
        is("handler.new", "bad_alloc").standard(),
        is("handler.calls", "3").standard(),
        is("handler.nothrow", "null").standard(),
        is("handler.nothrow.calls", "3").standard(),
        is("thrower.new", "bad_alloc").standard(),
        is("thrower.nothrow", "null").standard(),
        is("thrower.calls", "2").standard(),
        is("threads.caught", "3200").standard(),
    ]);
}
