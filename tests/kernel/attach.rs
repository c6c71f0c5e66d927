//! Attaching: what arrives, which threads are covered, semaphores up and down, what is refused.

use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;

use jeprobe::probe::attach::{AttachOptions, Attachment, Stacks};
use jeprobe::probe::discover::{self, DiscoverError};
use jeprobe::probe::hookfile::Hook;
use jeprobe::probe::ring::{self, Event};
use jeprobe_abi::drops::Reason;
use jeprobe_abi::event::{STACK_IN_PROCESS, STACK_KERNEL};
use jeprobe_tests::Run;

use crate::probing::{allocs, attach, drain, hooks, lost, need_probes, order, semaphores, target};

#[test]
fn events_carry_the_hooks_arguments_and_the_context_once() {
    need_probes!();
    let mut target = target(&[]);
    let mut attachment = attach(&target);
    order(&mut target, "alloc 3");
    order(&mut target, "free 2");
    order(&mut target, "dump");
    order(&mut target, "mallctl");
    let events = drain(&mut attachment);

    let pid = target.pid().cast_unsigned();
    assert!(events.iter().all(|event| event.header().tgid == pid), "{events:?}");
    assert!(events.windows(2).all(|pair| pair[0].header().time_ns <= pair[1].header().time_ns));
    let contexts: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Context(context) => Some(context),
            _ => None,
        })
        .collect();
    assert_eq!(contexts.len(), 1);
    assert_eq!(ring::frames(contexts[0]), [0x401000, 0x402000, 0x403000]);
    let Event::Context(_) = &events[0] else { panic!("the context comes before the event that names it") };

    for (at, event) in events[1..4].iter().enumerate() {
        let Event::Alloc(alloc) = event else { panic!("{event:?}") };
        assert_eq!(alloc.ptr, 0x1000 + 64 * at as u64);
        assert_eq!((alloc.usable_bytes, alloc.weight_bytes, alloc.requested_bytes), (64, 4096, 60));
        assert_eq!((alloc.stack, alloc.stack_kind), (contexts[0].stack, STACK_IN_PROCESS));
    }
    let Event::Free(free) = &events[5] else { panic!("{:?}", events[5]) };
    assert_eq!((free.ptr, free.usable_bytes), (0x1040, 64));
    let Event::Dump(dump) = &events[6] else { panic!("{:?}", events[6]) };
    assert_eq!((dump.sequence, dump.reason, ring::text(&dump.path).as_str()), (7, 1, "/tmp/target.heap"));
    let Event::Mallctl(call) = &events[7] else { panic!("{:?}", events[7]) };
    assert_eq!((ring::text(&call.name).as_str(), call.new_value, call.new_len), ("prof.active", 0, 1));
    assert_eq!(events.len(), 8, "reads of statistics are not told");
    lost(&attachment, Reason::RingFull, 0);
}

#[test]
fn all_threads_are_covered_older_and_newer_ones() {
    need_probes!();
    let mut target = target(&[]);
    let mut attachment = attach(&target);
    order(&mut target, "held");
    order(&mut target, "threads 4");
    let events = drain(&mut attachment);
    assert_eq!(allocs(&events), 5);
    let mut tids: Vec<u32> = events.iter().map(|event| event.header().tid).collect();
    tids.dedup();
    assert_eq!(tids.len(), 5, "five threads, none of them the main one");
}

#[test]
fn semaphores_follow_the_attachments() {
    need_probes!();
    let mut target = target(&[]);
    assert_eq!(semaphores(&mut target), [0; 4]);
    let first = attach(&target);
    assert_eq!(semaphores(&mut target), [1; 4]);
    let second = attach(&target);
    // The kernel counts probed places, not those who asked.
    assert_eq!(semaphores(&mut target), [1; 4]);
    drop(first);
    assert_eq!(semaphores(&mut target), [1; 4]);
    drop(second);
    assert_eq!(semaphores(&mut target), [0; 4]);
    // And a second life.
    let mut third = attach(&target);
    order(&mut target, "alloc 1");
    assert_eq!(allocs(&drain(&mut third)), 1);
    third.stop();
    assert_eq!(semaphores(&mut target), [0; 4]);
}

#[test]
fn without_in_process_stacks_the_process_is_not_asked_to_unwind() {
    need_probes!();
    let mut target = target(&["-fno-omit-frame-pointer"]);
    let options = AttachOptions { stacks: Stacks::Kernel, ..AttachOptions::default() };
    let mut attachment = Attachment::process(&hooks(&target), options).expect("attached");
    assert_eq!(semaphores(&mut target), [1, 1, 1, 0]);
    order(&mut target, "alloc 10");
    let events = drain(&mut attachment);
    let Event::Context(context) = &events[0] else { panic!("{:?}", events[0]) };
    assert_eq!(context.stack_kind, STACK_KERNEL);
    assert!(ring::frames(context).len() >= 3, "{:x?}", ring::frames(context));
    assert_eq!(context.stack, jeprobe_abi::logic::hash_frames(ring::frames(context)));
    assert_eq!(allocs(&events), 10);
    let others = events[1..].iter().filter(|event| !matches!(event, Event::Alloc(_))).count();
    assert_eq!(others, 0, "one stack, sent once");
}

#[test]
fn two_loaders_see_the_same() {
    need_probes!();
    let mut target = target(&[]);
    let mut first = attach(&target);
    let mut second = attach(&target);
    order(&mut target, "alloc 100");
    assert_eq!(allocs(&drain(&mut first)), 100);
    assert_eq!(allocs(&drain(&mut second)), 100);
}

/// A loader that is killed: this test program attaches in a child of itself, which then gets SIGKILL.
#[test]
fn a_killed_loader_leaves_no_semaphore_raised() {
    need_probes!();
    if let Ok(pid) = std::env::var("JEPROBE_TEST_LOADER") {
        let hooks = discover::process(pid.parse().expect("a pid")).expect("the target has hooks");
        let _attachment = Attachment::process(&hooks, AttachOptions::default()).expect("attached");
        println!("\nready");
        loop {
            std::thread::park();
        }
    }
    let mut target = target(&[]);
    let mut loader = Run::new(std::env::current_exe().expect("own path"))
        .args(["--exact", "attach::a_killed_loader_leaves_no_semaphore_raised", "--nocapture"])
        .env("JEPROBE_TEST_LOADER", target.pid().to_string())
        .spawn();
    loader.ready();
    assert_eq!(semaphores(&mut target), [1; 4]);
    loader.signal(libc::SIGKILL);
    assert_eq!(loader.finish().status.signal(), Some(libc::SIGKILL));
    assert_eq!(semaphores(&mut target), [0; 4]);
    order(&mut target, "alloc 10");
    let mut attachment = attach(&target);
    order(&mut target, "alloc 10");
    assert_eq!(allocs(&drain(&mut attachment)), 10);
}

#[test]
fn other_programs_otel_probes_are_read_where_their_notes_say() {
    need_probes!();
    let mut target = target(&["-DFOREIGN", "-fno-omit-frame-pointer"]);
    let hooks = hooks(&target);
    assert!(!hooks.files[0].file.hooks.is_jeprobe());
    assert_eq!(hooks.files[0].file.hooks.sites.len(), 2);
    let mut attachment = attach(&target);
    order(&mut target, "alloc 2");
    order(&mut target, "free 2");
    let events = drain(&mut attachment);
    assert_eq!(allocs(&events), 2);
    let Some(Event::Alloc(alloc)) = events.iter().rfind(|event| matches!(event, Event::Alloc(_))) else { panic!() };
    assert_eq!((alloc.ptr, alloc.usable_bytes, alloc.weight_bytes), (0x1040, 64, 4096));
    assert_eq!(alloc.stack_kind, STACK_KERNEL);
    let Some(Event::Free(free)) = events.last() else { panic!("{events:?}") };
    assert_eq!(free.ptr, 0x1040);
}

#[test]
fn one_attachment_per_file_covers_the_host() {
    need_probes!();
    // A program of its own, so that other tests' targets stay out.
    let flags = ["-DHOST_TEST"];
    let mut old = target(&flags);
    let file = Arc::clone(&hooks(&old).files[0].file);
    let mut attachment = Attachment::host(&[file], AttachOptions::default()).expect("attached");
    let mut new = target(&flags);
    assert_eq!(semaphores(&mut old), [1; 4]);
    assert_eq!(semaphores(&mut new), [1; 4]);
    assert!(!attachment.add(&hooks(&new).files[0].file).expect("nothing to do"), "the same file");
    order(&mut old, "alloc 3");
    order(&mut new, "alloc 4");
    let events = drain(&mut attachment);
    let of = |pid: i32| {
        let ours = |event: &&Event| event.header().tgid == pid.cast_unsigned();
        events.iter().filter(ours).filter(|event| matches!(event, Event::Alloc(_))).count()
    };
    assert_eq!((of(old.pid()), of(new.pid())), (3, 4));
    drop(attachment);
    assert_eq!(semaphores(&mut old), [0; 4]);
    assert_eq!(semaphores(&mut new), [0; 4]);
}

#[test]
fn damaged_and_dangerous_sites_are_refused() {
    for (flag, reason) in [("-DBASE_ZERO", "base 0"), ("-DLONG_NOP", "5-byte nop"), ("-DNO_NOP", "not a one-byte nop")]
    {
        let target = target(&[flag]);
        match discover::process(target.pid().cast_unsigned()) {
            Err(error @ DiscoverError::NoHooks { .. }) => assert!(error.to_string().contains(reason), "{error}"),
            other => panic!("{flag}: {other:?}"),
        }
    }
}

#[test]
fn stripped_static_and_deleted_programs_keep_their_hooks() {
    need_probes!();
    for flags in [&["-s"][..], &["-static"][..], &["-static-pie", "-s"][..]] {
        let mut target = target(flags);
        let mut attachment = attach(&target);
        order(&mut target, "alloc 2");
        assert_eq!(allocs(&drain(&mut attachment)), 2, "{flags:?}");
    }

    let dir = jeprobe_tests::TempDir::new("deleted");
    let program = dir.path().join("program");
    std::fs::copy(jeprobe_tests::compile::program("hooks_target.c", &["-pthread"]), &program).expect("copy");
    let mut target = Run::new(&program).spawn();
    target.ready();
    std::fs::remove_file(&program).expect("remove");
    let mut attachment = attach(&target);
    assert!(hooks(&target).files[0].file.deleted);
    order(&mut target, "alloc 2");
    assert_eq!(allocs(&drain(&mut attachment)), 2);
}

#[test]
fn what_is_attached_is_told() {
    need_probes!();
    let target = target(&[]);
    let attachment = attach(&target);
    let lines = attachment.describe();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("hooks_target"), "{lines:?}");
    for name in ["jeprobe:alloc", "jeprobe:free", "jeprobe:dump", "jeprobe:context"] {
        assert!(lines[0].contains(name), "{name} in {lines:?}");
    }
    let sites = &hooks(&target).files[0].file.hooks.sites;
    assert!(sites.iter().any(|site| site.hook == Hook::Mallctl));
}
