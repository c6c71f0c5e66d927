//! A roomy stack for work that is rare and deep, in threads whose own stack may be 16 KiB.

use core::arch::asm;

use super::{page_size, release, reserve};

/// 1 MiB of address space, of which only touched pages are resident.
const STACK_BYTES: usize = 1 << 20;

/// A stack besides the thread's own; unmapped when dropped.
pub(crate) struct LargeStack {
    base: *mut u8,
}

// SAFETY: memory that only the owner of the value uses.
unsafe impl Send for LargeStack {}

impl LargeStack {
    /// `None` without memory.
    pub(crate) fn new() -> Option<LargeStack> {
        reserve(STACK_BYTES, page_size()).map(|base| LargeStack { base: base.as_ptr() })
    }

    /// Runs `act` there. `act` must return: nothing may jump or unwind out of it (panics abort).
    pub(crate) fn run<R>(&mut self, act: impl FnOnce() -> R) -> R {
        let mut call = Call { act: Some(act), result: None };
        run(&raw mut call, self.base.wrapping_add(STACK_BYTES));
        match call.result {
            Some(result) => result,
            // `enter` stored it before it returned.
            None => unreachable!(),
        }
    }
}

impl Drop for LargeStack {
    fn drop(&mut self) {
        // SAFETY: S1: the mapping made in `new`; `run` has returned, so nothing runs on it.
        unsafe { release(self.base, STACK_BYTES) };
    }
}

/// Runs `act` on a stack that is made for it; `None` without memory for the stack. Costs two system calls.
pub(crate) fn on_large_stack<R>(act: impl FnOnce() -> R) -> Option<R> {
    LargeStack::new().map(|mut stack| stack.run(act))
}

struct Call<A, R> {
    act: Option<A>,
    result: Option<R>,
}

extern "C" fn enter<A: FnOnce() -> R, R>(call: *mut Call<A, R>) {
    // SAFETY: `run` passes the pointer to a live value that nothing else uses meanwhile.
    let call = unsafe { &mut *call };
    call.result = call.act.take().map(|act| act());
}

#[inline(never)]
fn run<A: FnOnce() -> R, R>(call: *mut Call<A, R>, top: *mut u8) {
    let entry: extern "C" fn(*mut Call<A, R>) = enter::<A, R>;
    // SAFETY: calls a C function with one argument on a stack that is 16-byte aligned and large enough; r12 belongs to
    // the caller in that convention, so the old stack pointer survives the call; everything else is declared clobbered.
    unsafe {
        asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {entry}",
            "mov rsp, r12",
            top = in(reg) top,
            entry = in(reg) entry,
            in("rdi") call,
            out("r12") _,
            clobber_abi("C"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{STACK_BYTES, on_large_stack};

    #[inline(never)]
    fn deep(n: usize) -> usize {
        let page = std::hint::black_box([n as u8; 4096]);
        if n == 0 { 0 } else { deep(n - 1) + usize::from(page[7] == n as u8) }
    }

    #[test]
    fn deep_work_runs_from_a_thread_with_a_small_stack() {
        // Unoptimised code keeps several copies of a page in each frame.
        let levels = STACK_BYTES / 4096 / 8;
        let thread = std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
            let here = core::ptr::from_ref(&levels).addr();
            let (count, there) = on_large_stack(|| {
                let local = 0;
                (deep(levels), core::ptr::from_ref(&local).addr())
            })
            .expect("memory");
            // Not the whole of its stack away: the large one may lie right below it.
            (count, here.abs_diff(there) > 32 << 10)
        });
        assert_eq!(thread.expect("thread").join().expect("no panic"), (levels, true));
    }

    #[test]
    fn no_memory_is_no_result() {
        super::super::mock::fail_after(Some(0));
        assert_eq!(on_large_stack(|| 1), None);
        super::super::mock::fail_after(None);
        assert_eq!(on_large_stack(|| 1), Some(1));
    }
}
