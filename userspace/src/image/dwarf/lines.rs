//! The line table of one unit: address to file and line.
//!
//! ```text
//! program ──► rows, in sequences (each ends with an end row) ──► sequences sorted, overlaps trimmed, nested ones dropped
//! ```
//!
//! Where a table breaks the rules (rows out of order, sequences that overlap) it is read as BFD reads it, so that answers
//! are those of addr2line: of equal addresses the last row counts, and of overlapping sequences the one that starts first.
//!
//! In one point BFD contradicts the standard: it begins the sequences of a version 5 table in file 0, not 1, and so gives
//! the unit's own file for code of a header. [`Reading`] says which of the two is wanted.
#![forbid(unsafe_code)]

use std::sync::Arc;

use gimli::{LineInstruction, LineProgramHeader};

use super::slice::{Dwarf, Reading, Slice, Unit};

/// File, line and discriminator from `address` up to the next row. 24 bytes.
#[derive(Clone, Copy, Debug)]
struct Row {
    address: u64,
    file: u32,
    line: u32,
    discriminator: u32,
    is_end: bool,
}

#[derive(Debug)]
struct Sequence {
    low: u64,
    rows: Vec<Row>,
}

impl Sequence {
    fn high(&self) -> u64 {
        self.rows.last().map_or(0, |row| row.address)
    }
}

/// What a line table says of an address. `S` stands for a text, here and around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Line<S = Arc<str>> {
    /// `None` when the table's file name is empty.
    pub(in super::super) file: Option<S>,
    /// 0 = no line.
    pub(in super::super) number: u32,
    pub(in super::super) discriminator: u32,
}

/// Rows and file names of one unit.
#[derive(Debug, Default)]
pub(super) struct LineTable {
    sequences: Vec<Sequence>,
    files: Files,
}

/// File names of a unit, joined with their directories.
#[derive(Debug, Default)]
struct Files {
    names: Vec<Arc<str>>,
    /// From version 5 on files are numbered from 0, before from 1.
    from_zero: bool,
}

impl Files {
    fn get(&self, number: u64) -> Option<&Arc<str>> {
        let index = if self.from_zero { Some(number) } else { number.checked_sub(1) };
        index.and_then(|index| self.names.get(usize::try_from(index).ok()?))
    }

    fn read(dwarf: &Dwarf<'_>, unit: &Unit<'_>, header: &LineProgramHeader<Slice<'_>>) -> Files {
        let text =
            |value| dwarf.attr_string(unit, value).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
        let from_zero = header.version() >= 5;
        let compilation = unit.comp_dir.map(|text| text.to_string_lossy().into_owned());
        let directories: Vec<String> = header.include_directories().iter().map(|value| text(*value)).collect();
        let names = header
            .file_names()
            .iter()
            .map(|file| {
                let name = text(file.path_name());
                if name.starts_with('/') {
                    return name.into();
                }
                let number = file.directory_index();
                let index = if from_zero { Some(number) } else { number.checked_sub(1) };
                let directory = index.and_then(|index| directories.get(usize::try_from(index).ok()?));
                let path = match (directory, &compilation) {
                    (Some(directory), _) if directory.starts_with('/') => format!("{directory}/{name}"),
                    (Some(directory), Some(compilation)) => format!("{compilation}/{directory}/{name}"),
                    (Some(directory), None) => format!("{directory}/{name}"),
                    (None, Some(compilation)) => format!("{compilation}/{name}"),
                    (None, None) => name,
                };
                path.into()
            })
            .collect();
        Files { names, from_zero }
    }
}

impl LineTable {
    /// Runs the unit's line program. A damaged program gives the rows up to the damage.
    pub(super) fn read(dwarf: &Dwarf<'_>, unit: &Unit<'_>, reading: Reading) -> Option<LineTable> {
        let program = unit.line_program.clone()?;
        let header = program.header();
        let first_file = u64::from(reading == Reading::AsStandard || header.version() < 5);
        let mut reader = Reader { sequences: Vec::new(), state: State::new(first_file), first_file };
        let mut instructions = header.instructions();
        while let Ok(Some(instruction)) = instructions.next_instruction(header) {
            reader.execute(&instruction, header);
        }
        let files = Files::read(dwarf, unit, header);
        Some(LineTable { sequences: trimmed(reader.sequences), files })
    }

    pub(super) fn file(&self, number: u64) -> Arc<str> {
        self.files.get(number).map_or_else(|| "<unknown>".into(), Arc::clone)
    }

    /// The row that covers an address.
    pub(super) fn find(&self, address: u64) -> Option<Line> {
        let after = self.sequences.partition_point(|sequence| sequence.low <= address);
        let sequence = self.sequences[..after].last().filter(|sequence| address < sequence.high())?;
        let after = sequence.rows.partition_point(|row| row.address <= address);
        let row = sequence.rows[..after].last().filter(|row| !row.is_end && after < sequence.rows.len())?;
        let file = self.file(u64::from(row.file));
        Some(Line { file: (!file.is_empty()).then_some(file), number: row.line, discriminator: row.discriminator })
    }
}

/// Registers of the line number machine.
struct State {
    address: u64,
    op_index: u64,
    file: u64,
    line: u32,
    discriminator: u64,
}

impl State {
    fn new(file: u64) -> State {
        State { address: 0, op_index: 0, file, line: 1, discriminator: 0 }
    }

    fn advance(&mut self, operations: u64, header: &LineProgramHeader<Slice<'_>>) {
        let length = u64::from(header.minimum_instruction_length());
        let most = u64::from(header.maximum_operations_per_instruction()).max(1);
        let operations = self.op_index.wrapping_add(operations);
        self.address = self.address.wrapping_add(length.wrapping_mul(operations / most));
        self.op_index = operations % most;
    }
}

struct Reader {
    sequences: Vec<Sequence>,
    state: State,
    first_file: u64,
}

impl Reader {
    fn execute(&mut self, instruction: &LineInstruction<Slice<'_>>, header: &LineProgramHeader<Slice<'_>>) {
        let range = header.line_range().max(1);
        let state = &mut self.state;
        match *instruction {
            LineInstruction::Special(opcode) => {
                let adjusted = opcode.wrapping_sub(header.opcode_base());
                state.advance(u64::from(adjusted / range), header);
                let lines = i32::from(header.line_base()) + i32::from(adjusted % range);
                state.line = state.line.wrapping_add_signed(lines);
                self.append(false);
            }
            LineInstruction::Copy => self.append(false),
            LineInstruction::AdvancePc(operations) => state.advance(operations, header),
            LineInstruction::AdvanceLine(lines) => state.line = state.line.wrapping_add_signed(lines as i32),
            LineInstruction::SetFile(file) => state.file = file,
            LineInstruction::ConstAddPc => {
                state.advance(u64::from((255 - header.opcode_base()) / range), header);
            }
            LineInstruction::FixedAddPc(distance) => {
                state.address = state.address.wrapping_add(u64::from(distance));
                state.op_index = 0;
            }
            LineInstruction::SetAddress(address) => {
                state.address = address;
                state.op_index = 0;
            }
            LineInstruction::SetDiscriminator(discriminator) => state.discriminator = discriminator,
            LineInstruction::EndSequence => {
                self.append(true);
                self.state = State::new(self.first_file);
            }
            _ => {}
        }
    }

    fn append(&mut self, is_end: bool) {
        let state = &mut self.state;
        let row = Row {
            address: state.address,
            file: u32::try_from(state.file).unwrap_or(u32::MAX),
            line: state.line,
            discriminator: state.discriminator as u32,
            is_end,
        };
        state.discriminator = 0;
        let open = self.sequences.last_mut().filter(|sequence| {
            // A second end at the same place replaces the first.
            sequence.rows.last().is_some_and(|last| !last.is_end || (is_end && last.address == row.address))
        });
        let Some(sequence) = open else {
            self.sequences.push(Sequence { low: row.address, rows: vec![row] });
            return;
        };
        let Some(last) = sequence.rows.last_mut() else { return };
        if last.address == row.address && last.is_end == is_end {
            *last = row;
        } else if is_end || row.address > last.address {
            sequence.rows.push(row);
        } else {
            let at = sequence.rows.partition_point(|other| other.address < row.address);
            sequence.rows.insert(at, row);
            sequence.low = sequence.low.min(row.address);
        }
    }
}

/// Sequences by address, made disjoint.
fn trimmed(mut sequences: Vec<Sequence>) -> Vec<Sequence> {
    // Of equal ranges the one that was read last.
    sequences.reverse();
    sequences.sort_by(|a, b| a.low.cmp(&b.low).then(b.high().cmp(&a.high())));
    let mut high = 0;
    sequences.retain_mut(|sequence| {
        if sequence.low < high {
            if sequence.high() <= high {
                return false;
            }
            sequence.low = high;
        }
        high = sequence.high();
        true
    });
    sequences
}
