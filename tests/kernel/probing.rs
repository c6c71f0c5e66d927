//! What the probe tests share: the target program with hooks, an attachment to it, its events.

use std::time::{Duration, Instant};

use jeprobe::probe::attach::{AttachOptions, Attachment};
use jeprobe::probe::discover::{self, ProcessHooks};
use jeprobe::probe::ring::Event;
use jeprobe_abi::drops::Reason;
use jeprobe_tests::{Run, Target, compile};

/// The target, ready; `flags` choose its kind of hooks.
pub(crate) fn target(flags: &[&str]) -> Target {
    let mut all = vec!["-pthread"];
    all.extend_from_slice(flags);
    let mut target = Run::new(compile::program("hooks_target.c", &all)).spawn();
    target.ready();
    target
}

pub(crate) fn hooks(target: &Target) -> ProcessHooks {
    discover::process(target.pid().cast_unsigned()).expect("the target has hooks")
}

pub(crate) fn attach(target: &Target) -> Attachment {
    Attachment::process(&hooks(target), AttachOptions::default()).expect("attached")
}

/// Has the target do something and waits until it is done.
pub(crate) fn order(target: &mut Target, line: &str) {
    target.tell(line);
    target.wait_for("done");
}

/// Everything in the ring now.
pub(crate) fn drain(attachment: &mut Attachment) -> Vec<Event> {
    let mut events = Vec::new();
    attachment.drain(&mut |event| events.push(event));
    events
}

/// Drains until `enough` says so.
pub(crate) fn drain_until(attachment: &mut Attachment, enough: impl Fn(&[Event]) -> bool) -> Vec<Event> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut events = Vec::new();
    while !enough(&events) {
        assert!(Instant::now() < deadline, "after {} events", events.len());
        let wait = Some(Duration::from_millis(100));
        jeprobe::wait::ready(&[std::os::fd::AsFd::as_fd(attachment)], wait).expect("poll");
        attachment.drain(&mut |event| events.push(event));
    }
    events
}

pub(crate) fn allocs(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Alloc(_))).count()
}

/// alloc, free, dump, ctx as the target reads them itself.
pub(crate) fn semaphores(target: &mut Target) -> [u32; 4] {
    target.tell("sem");
    let value = |text: String| text.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    let values = ["alloc = ", "free = ", "dump = ", "ctx = "].map(|name| value(target.wait_for(name)));
    target.wait_for("done");
    values
}

/// Asserts that nothing but the named reason was lost, and that this often.
pub(crate) fn lost(attachment: &Attachment, reason: Reason, count: u64) {
    let losses = attachment.losses();
    for other in Reason::ALL {
        let expected = if *other == reason { count } else { 0 };
        assert_eq!(losses[*other as usize], expected, "{}", other.name());
    }
}

macro_rules! need_probes {
    () => {
        if let Some(why) = jeprobe_tests::privilege::missing_for_probes() {
            jeprobe_tests::skip!("{why}");
        }
    };
}
pub(crate) use need_probes;
