//! What one poll of a task costs under our executor and under two well-kept ones: 16 tasks that only yield.
//!
//! `cargo run --release -p locus-runtime --example executors`

use locus_runtime::{Core, Idle, MonotonicClock, ThreadPark, block_on, interleave, yield_now};
use std::{hint::black_box, time::Instant};

const TASKS: u64 = 16;
const YIELDS: u64 = 1_000_000;

async fn yields() {
    for turn in 0..YIELDS {
        black_box(turn);
        yield_now().await;
    }
}

fn report(name: &str, start: Instant) {
    println!("{name:<42} {:6.2} ns per poll", start.elapsed().as_nanos() as f64 / (TASKS * YIELDS) as f64);
}

fn main() {
    let start = Instant::now();
    let core = Core::new(MonotonicClock::new(), 64);
    for _ in 0..TASKS {
        core.spawn(yields()).expect("16 tasks are fewer than 64");
    }
    core.run_until_idle();
    report("locus_runtime::Core", start);

    let start = Instant::now();
    interleave(TASKS as usize, (0..TASKS).map(|_| yields()), |_, ()| ());
    report("locus_runtime::interleave", start);

    let start = Instant::now();
    for _ in 0..TASKS {
        block_on(yields(), &ThreadPark::new(), &mut Idle::default());
    }
    report("locus_runtime::block_on, one by one", start);

    let start = Instant::now();
    let mut pool = futures::executor::LocalPool::new();
    for _ in 0..TASKS {
        use futures::task::LocalSpawnExt;
        pool.spawner().spawn_local(yields()).expect("the pool lives");
    }
    pool.run();
    report("futures::executor::LocalPool", start);

    let start = Instant::now();
    let executor = async_executor::LocalExecutor::new();
    let tasks: Vec<_> = (0..TASKS).map(|_| executor.spawn(yields())).collect();
    block_on(
        executor.run(async {
            for task in tasks {
                task.await;
            }
        }),
        &ThreadPark::new(),
        &mut Idle::default(),
    );
    report("async_executor::LocalExecutor", start);
}
