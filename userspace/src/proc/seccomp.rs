//! What a seccomp filter answers to a system call: the kernel's classic BPF, run here. Pure.
//!
//! ```text
//!  data: shape [u32; 16]: number, architecture, instruction pointer (2 words), six arguments (2 words each, low one first)
//!  program: forward jumps only, so it ends ─► action; of several programs the gravest counts
//! ```
#![forbid(unsafe_code)]

/// `struct sock_filter`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    pub code: u16,
    pub jump_true: u8,
    pub jump_false: u8,
    pub k: u32,
}

/// A system call as filters see it.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub number: u32,
    pub arguments: [u64; 6],
}

/// `AUDIT_ARCH_*` of 64-bit calls.
const ARCH: u32 = if cfg!(target_arch = "aarch64") { 0xC000_00B7 } else { 0xC000_003E };
/// Any place in user space.
const SOME_ADDRESS: u64 = 0x7f00_0000_1000;

/// `SECCOMP_RET_ACTION_FULL`, and the actions that end a process which does not expect them.
const ACTION: u32 = 0xffff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const KILL_THREAD: u32 = 0;
const TRAP: u32 = 0x0003_0000;
const ALLOW: u32 = 0x7fff_0000;

/// Bytes of what a filter can load.
const DATA_WORDS: usize = 16;

impl Call {
    fn data(&self) -> [u32; DATA_WORDS] {
        let mut data =
            [self.number, ARCH, SOME_ADDRESS as u32, (SOME_ADDRESS >> 32) as u32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for (words, argument) in data[4..].chunks_exact_mut(2).zip(self.arguments) {
            words.copy_from_slice(&[argument as u32, (argument >> 32) as u32]);
        }
        data
    }
}

/// Whether these filters, of one thread, end the thread or its process for this call. What cannot be understood counts as an end.
pub fn is_fatal(filters: &[Vec<Instruction>], call: &Call) -> bool {
    let data = call.data();
    let actions = filters.iter().map(|filter| run(filter, &data).unwrap_or(KILL_PROCESS) & ACTION);
    // As numbers with a sign, the gravest is the least.
    let gravest = actions.min_by_key(|action| action.cast_signed()).unwrap_or(ALLOW);
    matches!(gravest, KILL_PROCESS | KILL_THREAD | TRAP)
}

/// What a program returns; `None` for one that the kernel would not have taken.
fn run(program: &[Instruction], data: &[u32; DATA_WORDS]) -> Option<u32> {
    let (mut a, mut x, mut memory) = (0_u32, 0_u32, [0_u32; 16]);
    let mut at = 0;
    loop {
        let Instruction { code, jump_true, jump_false, k } = *program.get(at)?;
        at += 1;
        let operand = if code & 0x08 == 0 { k } else { x };
        match code & 0x07 {
            0x00 => {
                a = match code & 0xe0 {
                    0x00 => k,
                    0x20 if k % 4 == 0 => *data.get(k as usize / 4)?,
                    0x60 => *memory.get(k as usize)?,
                    0x80 => size_of_val(data) as u32,
                    _ => return None,
                }
            }
            0x01 => {
                x = match code & 0xe0 {
                    0x00 => k,
                    0x60 => *memory.get(k as usize)?,
                    0x80 => size_of_val(data) as u32,
                    _ => return None,
                }
            }
            0x02 => *memory.get_mut(k as usize)? = a,
            0x03 => *memory.get_mut(k as usize)? = x,
            0x04 => {
                a = match code & 0xf0 {
                    0x00 => a.wrapping_add(operand),
                    0x10 => a.wrapping_sub(operand),
                    0x20 => a.wrapping_mul(operand),
                    0x30 => a.checked_div(operand).unwrap_or(0),
                    0x40 => a | operand,
                    0x50 => a & operand,
                    0x60 => a.wrapping_shl(operand),
                    0x70 => a.wrapping_shr(operand),
                    0x80 => a.wrapping_neg(),
                    0xa0 => a ^ operand,
                    _ => return None,
                }
            }
            0x05 => {
                let holds = match code & 0xf0 {
                    0x00 => {
                        at = at.checked_add(k as usize)?;
                        continue;
                    }
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    0x40 => a & operand != 0,
                    _ => return None,
                };
                at += usize::from(if holds { jump_true } else { jump_false });
            }
            0x06 => return Some(if code & 0x18 == 0x10 { a } else { k }),
            _ => {
                if code & 0xf8 == 0x80 {
                    a = x;
                } else {
                    x = a;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ALLOW, Call, Instruction, KILL_PROCESS, TRAP, is_fatal};

    const ERRNO: u32 = 0x0005_0001;

    fn op(code: u16, k: u32) -> Instruction {
        Instruction { code, k, ..Instruction::default() }
    }

    fn jump(code: u16, k: u32, jump_true: u8, jump_false: u8) -> Instruction {
        Instruction { code, jump_true, jump_false, k }
    }

    fn call(number: u32) -> Call {
        Call { number, arguments: [0xffff_ffff_ffff_ff9c, 1, 0x8_0000, 0, 0, 0] }
    }

    /// The action for one number, allowed else.
    fn refuse(number: u32, action: u32) -> Vec<Instruction> {
        vec![op(0x20, 0), jump(0x15, number, 0, 1), op(0x06, action), op(0x06, ALLOW)]
    }

    #[test]
    fn the_gravest_of_all_filters_counts() {
        assert!(!is_fatal(&[], &call(257)));
        assert!(!is_fatal(&[refuse(257, ERRNO)], &call(257)));
        assert!(is_fatal(&[refuse(257, ERRNO), refuse(257, KILL_PROCESS)], &call(257)));
        assert!(is_fatal(&[refuse(257, 0), refuse(2, ERRNO)], &call(257)));
        assert!(is_fatal(&[refuse(257, TRAP | 7)], &call(257)));
        assert!(!is_fatal(&[refuse(257, KILL_PROCESS)], &call(0)));
    }

    #[test]
    fn arguments_and_arithmetic_are_seen() {
        // Allowed when argument 2, less a flag, is 0: read only.
        let program = vec![
            op(0x20, 32),
            op(0x54, !0x8_0000),
            op(0x02, 3),
            op(0x60, 3),
            op(0x07, 0),
            op(0x87, 0),
            jump(0x15, 0, 1, 0),
            op(0x06, KILL_PROCESS),
            op(0x06, ALLOW),
        ];
        assert!(!is_fatal(std::slice::from_ref(&program), &call(257)));
        let writes = Call { number: 257, arguments: [0, 0, 0x241, 0, 0, 0] };
        assert!(is_fatal(&[program], &writes));
    }

    #[test]
    fn what_is_no_program_counts_as_an_end() {
        for broken in
            [vec![], vec![op(0x20, 64)], vec![op(0x20, 3)], vec![jump(0x05, u32::MAX, 0, 0)], vec![op(0x00, 0)]]
        {
            assert!(is_fatal(&[broken], &call(1)));
        }
    }
}
