//! Libraries that come and go during a collection.

use std::thread;
use std::time::Duration;

use jeprobe_tests::{Run, TempDir, artefact, compile};

use crate::probing::need_probes;
use crate::session::{attach, interrupt};

/// What a library allocated that was closed again has its names, on the terminal and in the file.
#[test]
fn what_an_unloaded_library_holds_has_its_names() {
    need_probes!();
    let plugin = compile::shared_object("plugin.c", &["-O1", "-g", "-fno-optimize-sibling-calls"]);
    for mode in [&["--mode", "ebpf"][..], &["--mode", "ebpf", "--every-event"], &["--mode", "inprocess"]] {
        let dir = TempDir::new("unloaded");
        let host = compile::program("plugin_host.c", &["-O1", "-g"]);
        let mut target = Run::preloaded(host).arg(&plugin).spawn();
        target.ready();
        let command = attach(&target, &dir.join("a.heap"), &[mode, &["--lg-sample", "16"]].concat());
        for order in ["load", "1000"] {
            target.tell(order);
            target.wait_for("done");
        }
        // Longer than from one look at the process to the next.
        thread::sleep(Duration::from_millis(1500));
        target.tell("unload");
        assert_eq!(target.wait_for("done"), "done", "the library is gone");
        thread::sleep(Duration::from_millis(1200));
        let ended = interrupt(command).ok();
        assert!(ended.stdout.contains(" plugin_make\n"), "{mode:?}: {ended}");
        let report = Run::new(artefact::command()).arg("report").arg(dir.join("a.heap")).finish().ok();
        assert!(report.stdout.contains(" plugin_make\n"), "{mode:?}: {report}");
        // On both the same number of samples.
        let samples = |text: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix("estimated from "));
            line.and_then(|line| line.split(' ').next()).map(str::to_owned)
        };
        assert!(samples(&ended.stdout).is_some(), "{ended}");
        assert_eq!(samples(&ended.stdout), samples(&report.stderr), "{ended}{report}");
        assert_eq!(target.finish().code(), 0);
    }
}
