//! Messages of the protobuf formats, as `prost` structs. Field numbers are those of the public `.proto` files that each module
//! names; unknown fields are passed over when reading.
#![forbid(unsafe_code)]

pub mod otlp;
pub mod pprof;
