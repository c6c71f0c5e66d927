//! Bytes of the ring to typed records, by copy: length and kind are checked, every other bit pattern is valid.
#![forbid(unsafe_code)]

use jeprobe_abi::abi::MAX_FRAMES;
use jeprobe_abi::event::{
    AllocEvent, ContextEvent, DumpEvent, EVENT_ALLOC, EVENT_CONTEXT, EVENT_DUMP, EVENT_EXEC, EVENT_EXIT, EVENT_FORK,
    EVENT_FREE, EVENT_MALLCTL, FreeEvent, Header, LifecycleEvent, MallctlEvent, NAME_BYTES, PATH_BYTES,
};
use jeprobe_abi::pack::unpack;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Alloc(AllocEvent),
    Free(FreeEvent),
    /// Boxed: ten times as large as the others and much rarer.
    Context(Box<ContextEvent>),
    Dump(Box<DumpEvent>),
    Mallctl(Box<MallctlEvent>),
    Exec(LifecycleEvent),
    Exit(LifecycleEvent),
    Fork(LifecycleEvent),
}

impl Event {
    pub fn header(&self) -> &Header {
        match self {
            Event::Alloc(event) => &event.header,
            Event::Free(event) => &event.header,
            Event::Context(event) => &event.header,
            Event::Dump(event) => &event.header,
            Event::Mallctl(event) => &event.header,
            Event::Exec(event) | Event::Exit(event) | Event::Fork(event) => &event.header,
        }
    }

    /// Decodes one record; `None` when kind or length is not of this version.
    pub fn decode(bytes: &[u8]) -> Option<Event> {
        let mut words = Words { rest: bytes };
        let header = words.header()?;
        if header.len as usize != bytes.len() {
            return None;
        }
        let event = match header.kind {
            EVENT_ALLOC => Event::Alloc(AllocEvent {
                header,
                ptr: words.u64()?,
                usable_bytes: words.u64()?,
                weight_bytes: words.u64()?,
                requested_bytes: words.u64()?,
                stack: words.u64()?,
                stack_kind: words.u32()?,
                _pad: words.u32()?,
            }),
            EVENT_FREE => Event::Free(FreeEvent { header, ptr: words.u64()?, usable_bytes: words.u64()? }),
            EVENT_CONTEXT => {
                let (stack, stack_kind, depth) = (words.u64()?, words.u32()?, words.u32()?);
                if depth as usize > MAX_FRAMES {
                    return None;
                }
                let mut raw = [0; MAX_FRAMES];
                for word in &mut raw {
                    *word = words.u64()?;
                }
                // Beyond the depth the ring holds what was there before.
                let mut frames = [0; MAX_FRAMES];
                let frames_kept = frames.get_mut(..depth as usize)?;
                match words.u64()? {
                    0 => frames_kept.copy_from_slice(raw.get(..depth as usize)?),
                    packed => {
                        if !unpack(raw.get(..usize::try_from(packed).ok()?)?, frames_kept) {
                            return None;
                        }
                    }
                }
                Event::Context(Box::new(ContextEvent { header, stack, stack_kind, depth, frames, packed_words: 0 }))
            }
            EVENT_DUMP => Event::Dump(Box::new(DumpEvent {
                header,
                sequence: words.u64()?,
                reason: words.u64()?,
                path: words.bytes::<PATH_BYTES>()?,
            })),
            EVENT_MALLCTL => Event::Mallctl(Box::new(MallctlEvent {
                header,
                name: words.bytes::<NAME_BYTES>()?,
                new_value: words.u64()?,
                new_len: words.u64()?,
            })),
            EVENT_EXEC | EVENT_EXIT | EVENT_FORK => {
                let event = LifecycleEvent { header, other: words.u32()?, _pad: words.u32()? };
                match header.kind {
                    EVENT_EXEC => Event::Exec(event),
                    EVENT_EXIT => Event::Exit(event),
                    _ => Event::Fork(event),
                }
            }
            _ => return None,
        };
        words.rest.is_empty().then_some(event)
    }
}

/// Text of a record up to its NUL.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Frames of a context, leaf first.
pub fn frames(event: &ContextEvent) -> &[u64] {
    &event.frames[..(event.depth as usize).min(MAX_FRAMES)]
}

/// Takes little-endian words off the front.
struct Words<'a> {
    rest: &'a [u8],
}

impl Words<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn header(&mut self) -> Option<Header> {
        Some(Header { kind: self.u32()?, len: self.u32()?, tgid: self.u32()?, tid: self.u32()?, time_ns: self.u64()? })
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, frames, text};
    use jeprobe_abi::event::{EVENT_CONTEXT, EVENT_FORK, EVENT_FREE};

    fn record(kind: u32, len: u32, words: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [kind, len, 77, 78] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&5_u64.to_le_bytes());
        for word in words {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_free_and_a_fork() {
        let Some(Event::Free(free)) = Event::decode(&record(EVENT_FREE, 40, &[0x1000, 64])) else {
            panic!("a free");
        };
        assert_eq!((free.header.tgid, free.header.tid, free.header.time_ns), (77, 78, 5));
        assert_eq!((free.ptr, free.usable_bytes), (0x1000, 64));
        let Some(Event::Fork(fork)) = Event::decode(&record(EVENT_FORK, 32, &[99])) else { panic!("a fork") };
        assert_eq!(fork.other, 99);
    }

    #[test]
    fn frames_beyond_the_depth_are_dropped() {
        let mut words = vec![0xabc, 1 | 2 << 32];
        words.extend((1..=127).map(|n| n * 16));
        words.push(0);
        let Some(Event::Context(context)) = Event::decode(&record(EVENT_CONTEXT, 1064, &words)) else {
            panic!("a context");
        };
        assert_eq!(frames(&context), [16, 32]);
        assert_eq!(context.frames[2], 0);
        // Packed: 16 in a byte, then one of 32.
        words[2] = (32 << 3 | 1) | (64 << 3 | 1) << 16;
        words[129] = 1;
        let Some(Event::Context(context)) = Event::decode(&record(EVENT_CONTEXT, 1064, &words)) else {
            panic!("a packed context");
        };
        assert_eq!((frames(&context), context.packed_words), (&[16, 48][..], 0));
        words[129] = 200;
        assert_eq!(Event::decode(&record(EVENT_CONTEXT, 1064, &words)), None);
        words[1] = 1 | 128 << 32;
        assert_eq!(Event::decode(&record(EVENT_CONTEXT, 1064, &words)), None);
    }

    #[test]
    fn wrong_lengths_and_kinds_are_refused() {
        assert_eq!(Event::decode(&[]), None);
        assert_eq!(Event::decode(&record(EVENT_FREE, 40, &[1])), None);
        assert_eq!(Event::decode(&record(EVENT_FREE, 32, &[1])), None);
        assert_eq!(Event::decode(&record(EVENT_FREE, 48, &[1, 2, 3])), None);
        assert_eq!(Event::decode(&record(900, 40, &[1, 2])), None);
    }

    #[test]
    fn text_ends_at_nul() {
        assert_eq!(text(b"prof.dump\0junk"), "prof.dump");
        assert_eq!(text(b"full"), "full");
    }
}
