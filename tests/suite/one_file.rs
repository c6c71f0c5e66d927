//! The command as it is given to others: one static file under two names.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use jeprobe_tests::{Run, TempDir, artefact};

#[test]
fn the_file_needs_no_other() {
    for (arguments, wanted, unwanted) in
        [("-lW", "LOAD", "Requesting program interpreter"), ("-dW", "There is no dynamic section", "(NEEDED)")]
    {
        let listed = Run::new("readelf").arg(arguments).arg(artefact::command()).finish().ok();
        assert!(listed.stdout.contains(wanted), "{}", listed.stdout);
        assert!(!listed.stdout.contains(unwanted), "{}", listed.stdout);
    }
    let [command, jeprof] = [artefact::command(), artefact::jeprof()].map(|path| fs::metadata(path).expect("built"));
    assert_eq!((command.dev(), command.ino()), (jeprof.dev(), jeprof.ino()), "one file");
}

#[test]
fn its_name_says_which_command_it_is() {
    let folder = TempDir::new("one-file");
    let [hard, soft, other] = ["jeprof", "links/jeprof", "jeprobe-2"].map(|name| folder.path().join(name));
    fs::create_dir(folder.path().join("links")).expect("a directory");
    fs::hard_link(artefact::command(), &hard)
        .or_else(|_| fs::copy(artefact::command(), &hard).map(drop))
        .expect("a file");
    symlink(artefact::command(), &soft).expect("a link");
    symlink(artefact::jeprof(), &other).expect("a link");
    let fixture = artefact::fixture("jeprof");
    let text =
        |program: &Path| Run::new(program).dir(&fixture).args(["--text", "./leak_pie", "leak_pie.heap"]).finish();
    let wanted = text(&artefact::jeprof());
    assert_eq!(wanted.code(), 0, "{wanted}");
    assert!(wanted.stdout.starts_with("Total: ") && wanted.stdout.lines().count() > 3, "{}", wanted.stdout);
    for link in [&hard, &soft] {
        let got = text(link);
        assert_eq!((got.code(), &got.stdout, &got.stderr), (wanted.code(), &wanted.stdout, &wanted.stderr));
    }
    // Any other name is the first command, which knows neither the option nor profiles without a command.
    assert_eq!(text(&other).code(), 2);
    let report = Run::new(&other).dir(&fixture).args(["report", "./leak_pie", "leak_pie.heap"]).finish().ok();
    assert!(report.stdout.starts_with("Total: "), "{}", report.stdout);
}
