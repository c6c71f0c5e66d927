//! Tracepoints of exec, exit and fork: attaching to them, and where their records have what is asked for.
#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use super::load::Kernel;
use super::sys::{self, Tracefs};

/// Lets a program run at a tracepoint as long as the descriptor is open; else why it cannot.
pub(super) fn attach(
    kernel: &mut Kernel,
    tracefs: &Tracefs,
    program: &'static str,
    tracepoint: &str,
) -> Result<OwnedFd, String> {
    let id = tracefs.read(tracepoint, "id").map_err(|error| error.to_string())?;
    let id = id.trim().parse().map_err(|_| "its id is no number".to_owned())?;
    let program = kernel.program(program).map_err(|error| error.to_string())?;
    let event = sys::open_tracepoint(id, online_cpu()).map_err(|error| error.to_string())?;
    sys::attach(&event, program, None).and_then(|_| sys::enable(&event)).map_err(|error| error.to_string())?;
    Ok(event)
}

/// Offsets of `pid` and `clone_flags` in the record of `task:task_newtask`.
pub(super) fn fork_offsets(tracefs: &Tracefs) -> io::Result<(u32, u32)> {
    let format = tracefs.read("task/task_newtask", "format")?;
    let missing = || io::Error::from(io::ErrorKind::InvalidData);
    let pid = field_offset(&format, "pid_t pid", 4).ok_or_else(missing)?;
    let flags = field_offset(&format, "unsigned long clone_flags", 8)
        .or_else(|| field_offset(&format, "u64 clone_flags", 8))
        .ok_or_else(missing)?;
    Ok((pid, flags))
}

/// Offset of a field of the given size in a tracepoint's `format` text, whose lines are `field:TYPE NAME;`,
/// `offset:N;`, `size:N;`, `signed:N;`, parted by tabs.
fn field_offset(format: &str, declaration: &str, size: u32) -> Option<u32> {
    format.lines().find_map(|line| {
        let mut parts = line.trim().split(';').map(str::trim);
        if parts.next()?.strip_prefix("field:")? != declaration {
            return None;
        }
        let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
        (parts.next()?.strip_prefix("size:")?.parse() == Ok(size)).then_some(offset)
    })
}

/// Any CPU that is online; CPU 0 need not be.
pub(super) fn online_cpu() -> u32 {
    fs::read_to_string("/sys/devices/system/cpu/online")
        .ok()
        .and_then(|list| list.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::field_offset;

    const FORMAT: &str = "name: task_newtask\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
\tfield:pid_t pid;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:char comm[16];\toffset:12;\tsize:16;\tsigned:0;\n\
\tfield:unsigned long clone_flags;\toffset:32;\tsize:8;\tsigned:0;\n";

    #[test]
    fn fields_are_found_by_declaration_and_size() {
        assert_eq!(field_offset(FORMAT, "pid_t pid", 4), Some(8));
        assert_eq!(field_offset(FORMAT, "unsigned long clone_flags", 8), Some(32));
        assert_eq!(field_offset(FORMAT, "unsigned long clone_flags", 4), None);
        assert_eq!(field_offset(FORMAT, "pid", 4), None);
    }
}
