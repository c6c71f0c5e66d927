//! Const assertions: sizes and offsets of everything that crosses a boundary. No type has padding: each size equals the
//! sum of its fields.
#![forbid(unsafe_code)]

use core::mem::{offset_of, size_of};

use crate::config::Config;
use crate::event::{AllocEvent, ContextEvent, DumpEvent, FreeEvent, Header, LifecycleEvent, MallctlEvent};
use crate::keys::{Arg, Site, StackKey};
use crate::root::{Apart, Context, Counts, Live, Root, Segment, Tctx, Thread};

const _: () = {
    assert!(size_of::<Header>() == 24);
    assert!(size_of::<AllocEvent>() == 72);
    assert!(size_of::<FreeEvent>() == 40);
    assert!(size_of::<ContextEvent>() == 24 + 16 + 127 * 8 + 8);
    assert!(offset_of!(ContextEvent, frames) == 40);
    assert!(size_of::<DumpEvent>() == 24 + 16 + 256);
    assert!(size_of::<MallctlEvent>() == 24 + 64 + 16);
    assert!(size_of::<LifecycleEvent>() == 32);
    assert!(size_of::<Config>() == 40);
    assert!(size_of::<Arg>() == 24);
    assert!(size_of::<Site>() == 72);
    assert!(size_of::<StackKey>() == 16);

    assert!(size_of::<Root>() == 344);
    assert!(offset_of!(Root, state) == 36);
    assert!(offset_of!(Root, prof_active) == 48);
    assert!(offset_of!(Root, dump_request) == 52);
    assert!(offset_of!(Root, start_ns) == 80);
    assert!(offset_of!(Root, drops) == 136);
    assert!(offset_of!(Root, contexts) == 264);
    assert!(size_of::<Segment>() == 32);
    assert!(size_of::<Counts>() == 32);
    assert!(size_of::<Context>() == 24);
    assert!(size_of::<Tctx>() == 64);
    assert!(size_of::<Apart>() == 64);
    assert!(size_of::<Live>() == 64);
    assert!(size_of::<Thread>() == 80);
};
