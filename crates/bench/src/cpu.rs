//! How much processor time a process has used, in nanoseconds, from its POSIX CPU-time clock.
//!
//! `/proc/PID/stat` counts in ticks of 10 ms; these clocks count the nanoseconds that all threads of the process ran.

use crate::error::BenchError;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;

fn nanoseconds(time: TimeSpec) -> u64 {
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// CPU time that this process has used so far, in nanoseconds.
pub fn of_this_process() -> u64 {
    ClockId::CLOCK_PROCESS_CPUTIME_ID.now().map(nanoseconds).unwrap_or(0)
}

/// CPU time that all of `pids` together have used so far, in nanoseconds.
pub fn of_processes(pids: &[u32]) -> Result<u64, BenchError> {
    let mut total = 0;
    for &pid in pids {
        let time = clock_getcpuclockid(Pid::from_raw(pid as i32)).and_then(|clock| clock.now());
        total += nanoseconds(time.map_err(|errno| {
            BenchError::system(format!("reading the CPU time of process {pid}"))(errno.into())
        })?);
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn work_shows_in_the_time_of_this_process_by_either_clock() {
        let me = std::process::id();
        // In this order, so that what passes between the two readings counts for the second clock.
        let by_pid = of_processes(&[me]).unwrap();
        let own = of_this_process();
        let mut sum = 0_u64;
        while of_this_process() - own < 5_000_000 {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(1));
        }
        assert!(of_processes(&[me]).unwrap() - by_pid >= 5_000_000);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        // Beyond the kernel's largest process number.
        assert!(of_processes(&[(1 << 22) + 1]).is_err());
    }
}
