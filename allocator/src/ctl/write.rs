//! Handlers that change something. In each, the checks and the copying stand in the order that decides what a program
//! sees when several things are wrong at once.
#![forbid(unsafe_code)]

use core::ffi::c_void;

use super::args::{Answer, Args, EAGAIN, EFAULT, EINVAL, ENOENT, ENOMEM};
use super::read::{Arenas, arena_index};
use crate::arena::Arena;
use crate::conf::options;
use crate::error::CtlError;
use crate::prof::NameError;
use crate::{api, arenas, background, boot, epoch, prof, sys, tcache};

/// Beyond this a decay time in ns would not fit 64 bits.
const DECAY_MS_MAX: i64 = 18_446_744_072_000;

fn is_decay_ms(ms: i64) -> bool {
    (-1..=DECAY_MS_MAX).contains(&ms)
}

/// Runs `act` on each arena that the mib names.
fn for_arenas(mib: &[usize], act: impl Fn(&'static Arena)) {
    match arena_index(mib) {
        Arenas::One(index) => arenas::get(index).into_iter().for_each(act),
        Arenas::All => arenas::all().for_each(act),
        Arenas::None => {}
    }
}

/// `arena.<i>.purge`: gives back all unused dirty and muzzy pages.
pub(super) fn arena_purge(mib: &[usize], args: &Args<'_>) -> Answer {
    args.neither()?;
    for_arenas(mib, Arena::purge);
    Ok(())
}

/// `arena.<i>.decay`: gives back what is due by now.
pub(super) fn arena_decay(mib: &[usize], args: &Args<'_>) -> Answer {
    args.neither()?;
    let now = sys::clock_monotonic_ns();
    for_arenas(mib, |arena| arena.decay(now));
    Ok(())
}

fn arena_decay_ms(mib: &[usize], args: &Args<'_>, muzzy: bool) -> Answer {
    let Arenas::One(index) = arena_index(mib) else {
        return Err(EFAULT);
    };
    let arena = arenas::get(index).ok_or(EFAULT)?;
    args.read(arena.decay_ms(muzzy))?;
    if let Some(ms) = args.write::<i64>()? {
        if !is_decay_ms(ms) {
            return Err(EFAULT);
        }
        arena.set_decay_ms(muzzy, ms);
    }
    Ok(())
}

/// `arena.<i>.dirty_decay_ms`.
pub(super) fn arena_dirty_decay_ms(mib: &[usize], args: &Args<'_>) -> Answer {
    arena_decay_ms(mib, args, false)
}

/// `arena.<i>.muzzy_decay_ms`.
pub(super) fn arena_muzzy_decay_ms(mib: &[usize], args: &Args<'_>) -> Answer {
    arena_decay_ms(mib, args, true)
}

/// `arenas.create`: index of a new arena. Hooks are not supported, so a pointer to some is refused.
pub(super) fn arenas_create(_: &[usize], args: &Args<'_>) -> Answer {
    args.assured_room::<u32>()?;
    if args.write::<*const c_void>()?.is_some_and(|hooks| !hooks.is_null()) {
        return Err(EFAULT);
    }
    let arena = arenas::create().ok_or(EAGAIN)?;
    args.read(arena.ind())
}

fn reads_as(on: bool) -> bool {
    options().prof && on
}

/// `prof.active`. Without `opt.prof` it can only be switched off.
pub(super) fn prof_active(_: &[usize], args: &Args<'_>) -> Answer {
    let old = match args.write::<bool>()? {
        None => prof::active(),
        Some(true) if !options().prof => return Err(ENOENT),
        Some(on) => prof::set_active(on),
    };
    args.read(old)
}

/// `prof.thread_active_init`.
pub(super) fn prof_thread_active_init(_: &[usize], args: &Args<'_>) -> Answer {
    if args.writes() {
        profiling()?;
    }
    let old = match args.write::<bool>()? {
        None => reads_as(prof::thread_active_init()),
        Some(on) => prof::set_thread_active_init(on),
    };
    args.read(old)
}

/// For names that exist only with `opt.prof`.
fn profiling() -> Result<(), CtlError> {
    if options().prof { Ok(()) } else { Err(ENOENT) }
}

/// `prof.dump`: writes a profile to the file named, or to the next automatic name.
pub(super) fn prof_dump(_: &[usize], args: &Args<'_>) -> Answer {
    profiling()?;
    args.writeonly()?;
    let path = args.write_text()?;
    prof::dump(path).map_err(|_| EFAULT)
}

/// `prof.prefix`: start of automatic names.
pub(super) fn prof_prefix(_: &[usize], args: &Args<'_>) -> Answer {
    profiling()?;
    args.writeonly()?;
    let prefix = args.write_text()?.ok_or(EFAULT)?;
    prof::set_prefix(prefix);
    Ok(())
}

/// `prof.reset`: forgets all samples; a value changes the mean distance between them.
pub(super) fn prof_reset(_: &[usize], args: &Args<'_>) -> Answer {
    profiling()?;
    args.writeonly()?;
    let lg = args.write::<usize>()?;
    prof::reset(lg.map(|lg| lg.min(63) as u32));
    Ok(())
}

/// `thread.arena`: the index of the thread's arena; a new one moves the thread there.
pub(super) fn thread_arena(_: &[usize], args: &Args<'_>) -> Answer {
    let slot = boot::current();
    let old = slot.arena().map_or(0, Arena::ind);
    let new = args.write::<u32>()?.unwrap_or(old);
    args.read(old)?;
    if new == old {
        return Ok(());
    }
    if new >= arenas::count() {
        return Err(EFAULT);
    }
    slot.set_arena(arenas::get_or_create(new).ok_or(EAGAIN)?);
    Ok(())
}

/// `thread.tcache.enabled`; switching off gives back what it holds.
pub(super) fn thread_tcache_enabled(_: &[usize], args: &Args<'_>) -> Answer {
    let slot = boot::current();
    let old = slot.cache_enabled();
    if let Some(on) = args.write::<bool>()? {
        slot.set_cache_enabled(on);
    }
    args.read(old)
}

/// `thread.tcache.flush`.
pub(super) fn thread_tcache_flush(_: &[usize], args: &Args<'_>) -> Answer {
    let slot = boot::current();
    if !slot.cache_enabled() {
        return Err(EFAULT);
    }
    args.neither()?;
    slot.flush_cache();
    Ok(())
}

/// `thread.idle`: the thread will not allocate for a while.
pub(super) fn thread_idle(_: &[usize], args: &Args<'_>) -> Answer {
    args.neither()?;
    let slot = boot::current();
    if slot.cache_enabled() {
        slot.flush_cache();
    }
    Ok(())
}

/// `tcache.create`: id of a new explicit cache.
pub(super) fn tcache_create(_: &[usize], args: &Args<'_>) -> Answer {
    args.readonly()?;
    args.assured_room::<u32>()?;
    args.read(tcache::create().ok_or(EFAULT)?)
}

/// Runs `act` on the cache whose id was written; EFAULT when there is none.
fn on_tcache(args: &Args<'_>, act: impl Fn(u32, &Arena) -> bool) -> Answer {
    args.writeonly()?;
    let id = args.assured_write::<u32>()?;
    let arena = boot::current().arena().ok_or(EAGAIN)?;
    if act(id, arena) { Ok(()) } else { Err(EFAULT) }
}

/// `tcache.flush`: gives back what the cache of this id holds.
pub(super) fn tcache_flush(_: &[usize], args: &Args<'_>) -> Answer {
    on_tcache(args, tcache::flush)
}

/// `tcache.destroy`: the same, and frees the id.
pub(super) fn tcache_destroy(_: &[usize], args: &Args<'_>) -> Answer {
    on_tcache(args, tcache::destroy)
}

/// `epoch`: any value written takes a new picture of the statistics.
pub(super) fn epoch(_: &[usize], args: &Args<'_>) -> Answer {
    if args.write::<u64>()?.is_some() {
        epoch::refresh();
    }
    args.read(epoch::number())
}

/// `background_thread`: whether the thread runs; writing starts or stops it.
pub(super) fn background_thread(_: &[usize], args: &Args<'_>) -> Answer {
    let new = args.write::<bool>()?;
    let old = background::is_on();
    args.read(old)?;
    match new {
        Some(true) if !old => background::start().then_some(()).ok_or(EFAULT),
        Some(false) if old => {
            background::stop();
            Ok(())
        }
        _ => Ok(()),
    }
}

/// `arenas.lookup`: index of the arena that owns a pointer.
pub(super) fn arenas_lookup(_: &[usize], args: &Args<'_>) -> Answer {
    let pointer = args.assured_write::<*const c_void>()?;
    args.read(api::arena_of_ptr(pointer.cast()).ok_or(EINVAL)?)
}

/// `arenas.dirty_decay_ms`: for arenas made from now on.
pub(super) fn arenas_dirty_decay_ms(_: &[usize], args: &Args<'_>) -> Answer {
    arenas_decay_ms(args, false)
}

/// `arenas.muzzy_decay_ms`.
pub(super) fn arenas_muzzy_decay_ms(_: &[usize], args: &Args<'_>) -> Answer {
    arenas_decay_ms(args, true)
}

fn arenas_decay_ms(args: &Args<'_>, muzzy: bool) -> Answer {
    args.read(arenas::default_decay_ms(muzzy))?;
    match args.write::<i64>()? {
        Some(ms) if !is_decay_ms(ms) => Err(EFAULT),
        Some(ms) => {
            arenas::set_default_decay_ms(muzzy, ms);
            Ok(())
        }
        None => Ok(()),
    }
}

/// `thread.prof.name`: read or written, not both.
pub(super) fn thread_prof_name(_: &[usize], args: &Args<'_>) -> Answer {
    profiling()?;
    args.read_xor_write()?;
    let own = boot::current().prof();
    match args.write_text()? {
        None if args.writes() => Err(EINVAL),
        None => args.read(prof::thread_name(own).as_ptr()),
        Some(name) => prof::set_thread_name(own, name).map_err(|error| match error {
            NameError::Unprintable => EINVAL,
            NameError::NoMemory => ENOMEM,
        }),
    }
}

/// `thread.prof.active`.
pub(super) fn thread_prof_active(_: &[usize], args: &Args<'_>) -> Answer {
    if args.writes() {
        profiling()?;
    }
    let own = boot::current().prof();
    let old = match args.write::<bool>()? {
        None => reads_as(prof::thread_active(own)),
        Some(on) => prof::set_thread_active(own, on),
    };
    args.read(old)
}
