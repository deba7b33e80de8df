//! Channels between a client and a server core over `shm`, both in this process: what calls, losses, repeats and hostile
//! clients lead to. Most tests run both sides in one thread, step by step, so that nothing depends on timing.

mod calls;
mod fixture;
mod hostile;
mod losses;
mod threads;
