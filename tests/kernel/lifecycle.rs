//! exec, exit and fork while attached.

use jeprobe::probe::attach::{AttachOptions, Attachment};
use jeprobe::probe::discover;
use jeprobe::probe::ring::Event;
use jeprobe_tests::{Run, Target, compile};

use crate::probing::{allocs, attach, drain, drain_until, need_probes, order, semaphores, target};

fn pid(target: &Target) -> u32 {
    target.pid().cast_unsigned()
}

#[test]
fn a_fork_is_told_and_its_child_is_unharmed() {
    need_probes!();
    let mut target = target(&[]);
    let mut attachment = attach(&target);
    assert!(attachment.follows_lifecycle(), "{:?}", attachment.warnings());
    order(&mut target, "fork");
    order(&mut target, "alloc 3");
    let events = drain(&mut attachment);
    let forks: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Fork(fork) => Some(fork),
            _ => None,
        })
        .collect();
    assert_eq!(forks.len(), 1);
    assert!(forks[0].header.tgid == pid(&target) && forks[0].other != 0 && forks[0].other != pid(&target));
    assert_eq!(allocs(&events), 3, "the child is another process");
    drop(attachment);
    assert_eq!(semaphores(&mut target), [0; 4]);
    order(&mut target, "fork");
    assert!(target.seen().iter().any(|line| line == "child = 0"), "{:?}", target.seen());
}

#[test]
fn what_a_vfork_child_takes_is_its_parents() {
    need_probes!();
    let mut target = target(&[]);
    let mut attachment = attach(&target);
    order(&mut target, "vfork");
    let events = drain(&mut attachment);
    let Some(Event::Alloc(alloc)) = events.last() else { panic!("{events:?}") };
    assert_eq!((alloc.header.tgid, alloc.ptr), (pid(&target), 0xb00000));
    assert_ne!(alloc.header.tid, alloc.header.tgid);
}

#[test]
fn an_exec_is_told_and_the_new_image_is_probed() {
    need_probes!();
    let mut target = target(&[]);
    let mut attachment = attach(&target);
    order(&mut target, "alloc 1");
    target.tell("exec");
    target.ready();
    assert_eq!(semaphores(&mut target), [1; 4]);
    order(&mut target, "alloc 2");
    let events = drain(&mut attachment);
    let exec = events.iter().position(|event| matches!(event, Event::Exec(_))).expect("an exec");
    assert_eq!(allocs(&events[..exec]), 1);
    assert_eq!(allocs(&events[exec..]), 2);
    let contexts = events[exec..].iter().filter(|event| matches!(event, Event::Context(_))).count();
    assert_eq!(contexts, 1, "addresses of the old image are not taken for known");
}

/// A target in a pid namespace of its own: its ids there are not ours.
#[test]
fn a_target_in_another_pid_namespace() {
    need_probes!();
    let program = compile::program("hooks_target.c", &["-pthread"]);
    let mut unshare = Run::new("/usr/bin/unshare").args(["--pid", "--fork", "--kill-child"]).arg(program).spawn();
    let greeting = unshare.ready();
    assert!(greeting.contains("pid 1 "), "{greeting}");
    let parent = unshare.pid();
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).expect("children");
    let inner: u32 = children.trim().parse().expect("one child");
    let hooks = discover::process(inner).expect("hooks");
    let mut attachment = Attachment::process(&hooks, AttachOptions::default()).expect("attached");
    order(&mut unshare, "alloc 2");
    let events = drain(&mut attachment);
    assert_eq!(allocs(&events), 2);
    assert!(events.iter().all(|event| event.header().tgid == inner));
}

#[test]
fn the_end_is_told() {
    need_probes!();
    let mut target = target(&[]);
    let mut attachment = attach(&target);
    order(&mut target, "alloc 1");
    target.signal(libc::SIGKILL);
    let ended = |events: &[Event]| events.iter().any(|event| matches!(event, Event::Exit(_)));
    let events = drain_until(&mut attachment, ended);
    assert_eq!(allocs(&events), 1);
}
