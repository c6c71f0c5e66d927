//! Every loss is counted, and only once.

use jeprobe::probe::attach::{AttachOptions, Attachment};
use jeprobe::probe::ring::Event;
use jeprobe::session::Session;
use jeprobe_abi::drops::{DROP_REASONS, Reason};
use jeprobe_abi::event::STACK_IN_PROCESS;

use crate::probing::{allocs, attach, drain, hooks, lost, need_probes, order, target};

#[test]
fn a_full_ring() {
    need_probes!();
    let mut target = target(&[]);
    let options = AttachOptions { ring_bytes: 4096, ..AttachOptions::default() };
    let mut attachment = Attachment::process(&hooks(&target), options).expect("attached");
    order(&mut target, "alloc 1000");
    let seen = allocs(&drain(&mut attachment)) as u64;
    assert!((1..100).contains(&seen), "{seen}");
    lost(&attachment, Reason::RingFull, 1000 - seen);
    // The room is back.
    order(&mut target, "alloc 1");
    assert_eq!(allocs(&drain(&mut attachment)), 1);
    lost(&attachment, Reason::RingFull, 1000 - seen);
}

#[test]
fn a_context_that_cannot_be_read() {
    need_probes!();
    let mut target = target(&[]);
    let mut attachment = attach(&target);
    order(&mut target, "bad");
    order(&mut target, "bad");
    let events = drain(&mut attachment);
    assert_eq!(events.len(), 2);
    let Event::Alloc(alloc) = &events[0] else { panic!("{:?}", events[0]) };
    assert_eq!((alloc.stack, alloc.stack_kind), (0x10, STACK_IN_PROCESS));
    lost(&attachment, Reason::ContextUnread, 2);
}

/// A probe cannot wait for a page; the loader can. What nobody can read is no loss of samples.
#[test]
fn a_name_of_a_call_that_the_kernel_cannot_read() {
    need_probes!();
    let mut target = target(&[]);
    let pid = target.pid().cast_unsigned();
    let mut session = Session::process(pid, AttachOptions::default()).expect("attached");
    order(&mut target, "alloc 2");
    order(&mut target, "unread");
    session.stop();
    let member = session.member(pid).expect("it runs");
    assert_eq!(member.mallctls.get("prof.reset"), Some(&1), "{:?}", member.mallctls);
    assert_eq!(member.unread_calls, 1);
    assert_eq!(session.losses(), [0; DROP_REASONS]);
    let profile = session.profile(pid).expect("it runs");
    assert_eq!(profile.sum().current.raw.objects, 0, "the reset counted");
}
