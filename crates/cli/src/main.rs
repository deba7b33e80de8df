//! The locus command.
#![forbid(unsafe_code)]
fn main() {}
