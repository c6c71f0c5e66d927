//! The kernel suite: probes on real processes. Needs what `privilege::missing_for_probes` names; skips say so.
mod agreement;
mod attach;
mod command;
mod confined;
mod faults;
mod lifecycle;
mod losses;
mod probing;
mod session;
mod threads;
mod truth_attached;
mod unloaded;
