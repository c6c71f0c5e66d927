//! exec, exit and fork while attached.

use jeprobe::probe::ring::Event;
use jeprobe_tests::Target;

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
