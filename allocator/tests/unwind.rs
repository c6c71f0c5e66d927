//! Stacks of known shape: C code built with and without frame pointers and unwind tables, loaded, unloaded and deleted
//! while the program runs, on ordinary stacks, coroutine stacks and in small threads.
//!
//! The chain in `chain.c` calls back into this program, which takes a sample there; the stack is read from the dump and
//! named by the dynamic linker. One process-wide table, so everything is one test.

use std::ffi::{CStr, CString, c_char, c_int, c_ulong, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

use jeprobe_abi::drops::Reason;
use jeprobe_alloc::conf::Options;
use jeprobe_alloc::prof::{self, Caller, Object, ThreadProf, pieces};

type Callback = extern "C" fn(*mut c_void);
type Chain = unsafe extern "C" fn(Callback, *mut c_void) -> c_int;
type ChainOnStack = unsafe extern "C" fn(Callback, *mut c_void, *mut c_char, c_ulong) -> c_int;

const CHAIN: [&str; 5] = ["chain_last", "chain_fourth", "chain_third", "chain_second", "chain_first"];

/// `None` without a C compiler.
fn build(dir: &Path, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let out = dir.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chain.c");
    let status = Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&out).arg(source).args(flags).status();
    match status {
        Ok(status) => {
            assert!(status.success());
            Some(out)
        }
        Err(_) => None,
    }
}

struct Library(*mut c_void);

impl Library {
    fn open(path: &Path) -> Library {
        let path = CString::new(path.to_str().expect("text")).expect("path");
        // SAFETY: a NUL-terminated path of a library without constructors.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null());
        Library(handle)
    }

    fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: an open library and a NUL-terminated name.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!symbol.is_null());
        symbol
    }

    fn chain(&self) -> Chain {
        // SAFETY: the symbol's type in chain.c.
        unsafe { std::mem::transmute::<*mut c_void, Chain>(self.symbol(c"chain_first")) }
    }

    fn chain_on_stack(&self) -> ChainOnStack {
        // SAFETY: the symbol's type in chain.c.
        unsafe { std::mem::transmute::<*mut c_void, ChainOnStack>(self.symbol(c"chain_on_stack")) }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: opened in `open`; nothing of it is used any more.
        unsafe { libc::dlclose(self.0) };
    }
}

fn symbol_of(pc: usize) -> String {
    // SAFETY: all fields may be zero.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the call only looks the address up.
    let found = unsafe { libc::dladdr(pc as *const c_void, &raw mut info) };
    if found == 0 || info.dli_sname.is_null() {
        return String::new();
    }
    // SAFETY: the linker's own string.
    unsafe { CStr::from_ptr(info.dli_sname) }.to_string_lossy().into_owned()
}

/// Takes one sample where it is called; `data` is the thread's sampler.
extern "C" fn take(data: *mut c_void) {
    // SAFETY: the chain passes on what `stack_of` gave it.
    let thread = unsafe { &*data.cast::<ThreadProf>() };
    let object = Object { live: pieces::live(0x4000_0000).expect("memory"), requested: 99, usable: 100 };
    let outcome =
        prof::sample(thread, Some(object), 100, 0, 0, jeprobe_alloc::sys::clock_monotonic_ns(), Caller::UNKNOWN);
    assert!(outcome.marked);
}

/// Symbols of the stack that the chain records, leaf first; libraries are still loaded.
fn stack_of(dir: &Path, run: impl FnOnce(*mut c_void)) -> Vec<String> {
    let thread = ThreadProf::NEW;
    prof::thread_init(&thread);
    run(std::ptr::from_ref(&thread).cast_mut().cast());
    let path = dir.join("stack.heap");
    let c_path = CString::new(path.to_str().expect("text")).expect("path");
    prof::dump(Some(&c_path)).expect("dump");
    // No sample is left for the next stack.
    prof::reset(None);
    prof::thread_exit(&thread, 0, 0);
    let text = std::fs::read_to_string(&path).expect("readable");
    let stacks: Vec<&str> = text.lines().filter(|line| line.starts_with('@')).collect();
    assert_eq!(stacks.len(), 1, "{text}");
    let address = |word: &str| usize::from_str_radix(word.trim_start_matches("0x"), 16).expect("address");
    stacks[0].split(' ').skip(1).map(|word| symbol_of(address(word) - 1)).collect()
}

/// The chain's frames, in order, somewhere in the stack; returns what comes after them.
fn assert_chain<'a>(stack: &'a [String], what: &str) -> &'a [String] {
    let at = stack.windows(CHAIN.len()).position(|window| window == CHAIN);
    let at = at.unwrap_or_else(|| panic!("{what}: no whole chain in {stack:?}"));
    &stack[at + CHAIN.len()..]
}

fn call(library: &Library, data: *mut c_void) {
    // SAFETY: the chain calls `take` with `data`.
    let levels = unsafe { library.chain()(take, data) };
    assert_eq!(levels, 5);
}

#[test]
fn stacks_of_known_shape() {
    let dir = std::env::temp_dir().join(format!("jeprobe-unwind-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("directory");
    let mut options = Options::new();
    options.prof = true;
    options.lg_prof_sample = 0;
    prof::boot(Box::leak(Box::new(options)));

    let Some(tables) = build(&dir, "tables.so", &["-fomit-frame-pointer"]) else {
        println!("skipped: stacks of C code (no C compiler)");
        return;
    };
    let pointers = ["-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    let pointers = build(&dir, "pointers.so", &pointers).expect("built");
    let nothing = ["-fomit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    let nothing = build(&dir, "nothing.so", &nothing).expect("built");
    let root = &prof::jeprobe_root;

    // Loaded after the sampler first looked at the mappings, and unloaded again: each load is met anew.
    for round in 0..2 {
        let before = root.drops_of(Reason::TruncatedStack);
        let library = Library::open(&tables);
        let stack = stack_of(&dir, |data| call(&library, data));
        let rest = assert_chain(&stack, "unwind tables");
        assert!(rest.len() > 3, "round {round}: {stack:?}");
        assert_eq!(root.drops_of(Reason::TruncatedStack), before, "round {round}: {stack:?}");
        drop(library);
        // Another library at the place of the first.
        wait_for_refresh();
        let library = Library::open(&pointers);
        let stack = stack_of(&dir, |data| call(&library, data));
        assert_chain(&stack, "frame pointers");
        wait_for_refresh();
    }

    // Without any information the walk may end early; the leaf is right and nothing breaks.
    let library = Library::open(&nothing);
    let stack = stack_of(&dir, |data| call(&library, data));
    assert!(stack.iter().any(|name| name == "chain_last"), "{stack:?}");
    drop(library);

    // A file that was replaced: the tables are copied from memory.
    let library = Library::open(&tables);
    std::fs::remove_file(&tables).expect("removed");
    wait_for_refresh();
    let stack = stack_of(&dir, |data| call(&library, data));
    assert_chain(&stack, "deleted file");

    // A coroutine's stack: the walk ends where it ends.
    let mut own = vec![0; 64 << 10];
    let stack = stack_of(&dir, |data| {
        // SAFETY: the stack outlives the call, and the chain calls `take` with `data`.
        unsafe { library.chain_on_stack()(take, data, own.as_mut_ptr(), own.len() as c_ulong) };
    });
    assert_chain(&stack, "coroutine");

    // A thread with a small stack.
    let small = std::thread::Builder::new().stack_size(32 << 10);
    let chain = library.chain();
    let stack = std::thread::scope(|scope| {
        let run = || {
            stack_of(&dir, |data| {
                // SAFETY: the chain calls `take` with `data`.
                unsafe { chain(take, data) };
            })
        };
        let worker = small.spawn_scoped(scope, run).expect("thread");
        worker.join().expect("no panic")
    });
    assert_chain(&stack, "small thread");
    std::fs::remove_dir_all(&dir).expect("clean up");
}

/// The modules are read again within a second or two, whatever the walks are like.
fn wait_for_refresh() {
    std::thread::sleep(std::time::Duration::from_millis(2100));
}
