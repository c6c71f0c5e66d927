//! Why a sample or an event was lost: the only source of ids, user text and documentation.
#![forbid(unsafe_code)]

macro_rules! reasons {
    ($($variant:ident = $id:literal, $name:literal, $meaning:literal, $remedy:literal;)*) => {
        /// A loss, counted where it happens and printed with every result.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Reason { $(#[doc = $meaning] $variant = $id,)* }

        impl Reason {
            pub const ALL: &'static [Reason] = &[$(Reason::$variant,)*];

            /// The reason with this id, `None` when this version does not know it.
            pub const fn from_raw(id: u32) -> Option<Reason> {
                match id { $($id => Some(Reason::$variant),)* _ => None }
            }

            /// Short name for tables and machine-readable output.
            pub const fn name(self) -> &'static str { match self { $(Reason::$variant => $name,)* } }

            /// What was lost.
            pub const fn meaning(self) -> &'static str { match self { $(Reason::$variant => $meaning,)* } }

            /// What the user can do about it.
            pub const fn remedy(self) -> &'static str { match self { $(Reason::$variant => $remedy,)* } }
        }
    };
}

reasons! {
    Reentrant = 0, "reentrant", "sample points reached while the recorder itself was running", "none needed unless it grows; raise --lg-sample";
    NoMemory = 1, "no-memory", "samples not recorded because the recorder got no memory", "raise the memory limit of the process";
    ThreadExiting = 2, "thread-exiting", "samples of threads that were already ending", "none needed unless it grows";
    NoStack = 3, "no-stack", "samples recorded without a stack", "check that the program has unwind tables or frame pointers, and that it can read /proc (in a chroot, mount it there; a sandbox has to allow it)";
    TruncatedStack = 4, "truncated-stack", "stacks that ended before the outermost frame", "raise prof_bt_max, or build with unwind tables";
    RingFull = 5, "ring-full", "events lost because the ring buffer was full", "raise --ring-size or --lg-sample";
    MapFull = 6, "map-full", "events lost because a kernel map was full", "raise --lg-sample";
    BadArgs = 7, "bad-args", "probe hits whose arguments could not be read", "report this with the versions of kernel and jeprobe";
    UnknownFree = 8, "unknown-free", "frees of samples that were taken before the attach and not seen in the table", "none needed";
    ContextUnread = 9, "context-unread", "stacks in the process that could not be copied by the kernel", "use --stacks kernel";
    UserStackFault = 10, "user-stack-fault", "stacks that the kernel could not walk", "use --stacks ctx, or build with frame pointers";
    UnknownRecord = 11, "unknown-record", "ring records of an unknown kind or length", "use loader and kernel object of one version";
    TornRead = 12, "torn-read", "table entries that changed while they were read", "repeat the dump; stop the process first for an exact one";
}

/// Length of every array indexed by reason. Larger than the list, so that a new reason keeps the layout.
pub const DROP_REASONS: usize = 16;

const _: () = assert!(Reason::ALL.len() <= DROP_REASONS);
