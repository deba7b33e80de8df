//! Channels between a client and a server core over `shm`, both in this process: what calls, losses, repeats and hostile
//! clients lead to. Most tests run both sides in one thread, step by step, so that nothing depends on timing.

/// Makes a test of each of these, which runs over every pair of verbs.
macro_rules! on_every_pair {
    ($($name:ident),* $(,)?) => {
        mod on_every_pair {
            $(#[test]
            fn $name() {
                crate::fixture::on_every_pair(super::$name);
            })*
        }
    };
}

mod calls;
mod fixture;
mod hostile;
mod losses;
mod overdue;
mod slots;
mod threads;
