//! Names of programs whose file is gone: a profile that was taken in time has them.

use std::fs;

use jeprobe_tests::{Run, TempDir, artefact, compile, skip};

#[test]
fn a_program_deleted_while_it_ran_is_named_when_it_has_ended() {
    if artefact::library().is_none() {
        skip!("the C library's allocator has no profile");
    }
    let directory = TempDir::new("report-passing");
    let program = directory.join("holder");
    fs::copy(compile::program("holder.c", &["-O1", "-g"]), &program).expect("copied");
    let mut target = Run::preloaded(&program).conf("prof:true,prof_active:true,lg_prof_sample:15").spawn();
    target.ready();
    fs::remove_file(&program).expect("deleted");
    let pid = target.pid().to_string();
    let command = || Run::new(artefact::command()).dir(directory.path());
    let dump = command().args(["dump", "--pid", &pid, "-o", "p.heap"]).finish();
    target.tell("end");
    target.finish().discard();
    let dump = dump.ok();
    assert!(dump.stdout.contains(" main\n"), "its own table has the names: {dump}");
    // And the file, with the functions that were inlined and the lines.
    for options in [&["p.heap"][..], &["p.heap", "--lines"], &["p.heap", "--format", "tree"]] {
        let report = command().arg("report").args(options).finish().ok();
        assert!(report.stdout.contains("hold") && report.stdout.contains("main"), "{report}");
    }
    let lines = command().args(["report", "--lines", "p.heap"]).finish().ok();
    assert!(lines.stdout.contains("holder.c:14"), "{lines}");
    // Another program under the path is not taken for it.
    fs::copy("/bin/true", &program).expect("copied");
    let folded = command().args(["report", "--format", "folded", "p.heap"]).finish().ok();
    assert!(folded.stdout.contains("main;hold"), "{folded}");
}
