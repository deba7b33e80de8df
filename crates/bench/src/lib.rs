//! Workloads, load generation, live peers and reports.
#![forbid(unsafe_code)]
