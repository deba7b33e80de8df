//! The locus command from outside, as a user types it.

mod crowds;
mod faults;
mod harness;
mod histories;
mod large_files;
mod load;
mod records;
mod reports;
mod serving;
mod simulations;
mod ways;
