//! Every loss is counted, and only once.

use jeprobe::probe::attach::{AttachOptions, Attachment};
use jeprobe::probe::ring::Event;
use jeprobe_abi::drops::Reason;
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
