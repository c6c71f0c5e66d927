//! operator new when there is no memory: what passes through it, and which C++ runtime it finds.

use jeprobe_tests::artefact::{Flavour, flavour};
use jeprobe_tests::facts::is;
use jeprobe_tests::{Run, compile, skip};

/// Exceptions of new handlers, of the program's own type too, pass the throwing forms as they are and become null in
/// the quiet ones. All rows hold for the C++ runtime's own operators.
#[test]
fn handlers_throw_through_the_operators() {
    if flavour() == Flavour::Jemalloc530 {
        skip!("jemalloc ends the program on a handler's own exception");
    }
    let program = compile::program("cxx_new.cc", &["-Wno-alloc-size-larger-than"]);
    Run::preloaded(program).finish().ok().facts().check(&[
        is("none plain", "bad_alloc").standard(),
        is("none array", "bad_alloc").standard(),
        is("none quiet", "null").standard(),
        is("none quiet_array", "null").standard(),
        is("none aligned", "bad_alloc").standard(),
        is("none aligned_array", "bad_alloc").standard(),
        is("none aligned_quiet", "null").standard(),
        is("none aligned_quiet_array", "null").standard(),
        is("none calls", "0").standard(),
        is("mine plain", "mine").standard(),
        is("mine array", "mine").standard(),
        is("mine quiet", "null").standard(),
        is("mine quiet_array", "null").standard(),
        is("mine aligned", "mine").standard(),
        is("mine aligned_array", "mine").standard(),
        is("mine aligned_quiet", "null").standard(),
        is("mine aligned_quiet_array", "null").standard(),
        is("mine calls", "8").standard(),
        is("bad_alloc plain", "bad_alloc").standard(),
        is("bad_alloc quiet", "null").standard(),
        is("bad_alloc aligned", "bad_alloc").standard(),
        is("bad_alloc aligned_quiet_array", "null").standard(),
        is("bad_alloc calls", "8").standard(),
        is("removing plain", "bad_alloc").standard(),
        is("removing quiet", "null").standard(),
        is("removing aligned_quiet_array", "null").standard(),
        is("removing calls", "24").standard(),
        is("retried", "2").standard(),
        is("retry keeps alignment", "1").standard(),
        is("caught", "1000").standard(),
        is("destroyed", "1000").standard(),
        is("misaligned", "0").standard(),
        is("vector", "99999").standard(),
    ]);
}

#[test]
fn a_runtime_loaded_later_is_found() {
    if flavour() != Flavour::Jeprobe {
        skip!("others are linked to the runtime");
    }
    let plugin = compile::shared_object("cxx_plugin.cc", &[]);
    let ended = Run::preloaded(compile::program("cxx_late.c", &[])).arg(plugin).finish().ok();
    ended.facts().check(&[is("throwing", "2"), is("quiet", "2")]);
}

#[test]
fn without_a_runtime_the_reason_is_said() {
    if flavour() != Flavour::Jeprobe {
        skip!("others are linked to the runtime");
    }
    let ended = Run::preloaded(compile::program("cxx_late.c", &[])).arg("none").finish();
    assert_eq!(ended.signal(), Some(6), "{ended}");
    assert_eq!(
        ended.stderr,
        "<jeprobe>: operator new: no memory for 1152921504606846976 bytes, and no C++ runtime is loaded that could \
         throw std::bad_alloc. Aborting.\n"
    );
    assert_eq!(ended.stdout, "block = 1\nquiet = 0\n");
}

#[test]
fn infallible_new_ends_the_program() {
    if flavour() != Flavour::Jeprobe {
        skip!("the text is ours");
    }
    let ended = Run::preloaded(compile::program("cxx_late.c", &[]))
        .conf("experimental_infallible_new:true")
        .arg("none")
        .finish();
    assert_eq!(ended.signal(), Some(6), "{ended}");
    assert_eq!(
        ended.stderr,
        "<jeprobe>: Allocation of size 1152921504606846976 failed. opt.experimental_infallible_new is true. Aborting.\n"
    );
}
