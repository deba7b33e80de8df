//! The provider `shm` between real processes: deaths, successors, addresses, and peers that send garbage.
//!
//! The test starts this same program again for each other process it needs; the first argument `--role` then selects
//! what that process does (see [`roles`]). Everything that a test waits for is an event, with a bound.

mod addresses;
mod deaths;
mod peers;
mod roles;
mod strangers;
#[path = "../shared/wait.rs"]
mod wait;

use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;

/// Makes a test of a function, named after it.
macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        vec![$(Trial::test(concat!(stringify!($module), "::", stringify!($name)), || {
            $module::$name();
            Ok(())
        })),*]
    };
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("--role") {
        roles::play(&arguments.collect::<Vec<_>>());
        return ExitCode::SUCCESS;
    }
    let tests = tests![
        peers::serve_each_other,
        peers::cannot_write_what_they_may_only_read,
        peers::cannot_shrink_what_they_were_given,
        peers::forged_memory_is_refused,
        peers::scribbling_over_rings_harms_only_the_scribbler,
        deaths::a_killed_server_is_noticed_amid_traffic,
        deaths::a_killed_server_is_noticed_between_messages,
        deaths::a_killed_server_wakes_a_sleeping_client,
        deaths::a_server_that_exits_is_noticed,
        deaths::a_killed_client_is_noticed_and_others_go_on,
        deaths::a_killed_client_leaves_nothing_behind,
        deaths::a_successor_listens_only_after_the_death_shows,
        deaths::reads_fail_soon_after_a_death,
        addresses::a_second_listener_is_refused,
        addresses::a_stale_socket_is_replaced,
        addresses::a_file_that_is_no_socket_is_left_alone,
        addresses::a_socket_of_another_program_is_left_alone,
        addresses::the_socket_is_for_its_owner_alone,
        addresses::nobody_is_an_error_that_says_so,
        addresses::a_dropped_listener_frees_its_address,
        addresses::many_processes_compete_for_one_address,
        strangers::that_say_nothing_block_nobody,
        strangers::that_send_garbage_harm_nobody,
        strangers::that_leave_at_once_harm_nobody,
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}
