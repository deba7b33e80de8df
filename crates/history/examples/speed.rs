//! How long checks take: `cargo run --release -p locus-history --example speed [OPERATIONS]`, per key.

#[path = "../tests/shared/mod.rs"]
mod shared;

use locus_history::{Action, History, Limits, check, minimise};
use shared::{Shape, linearizable};
use std::time::Instant;

fn main() {
    let operations = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(10_000);
    println!(
        "{:<52} {:>10} {:>12} {:>12}",
        "operations on one key", "check ms", "violation ms", "minimise ms"
    );
    for clients in [1, 8, 64] {
        for (values, puts_percent, deletes_percent, unknown_percent) in [
            (0, 50, 0, 0),
            (0, 5, 0, 0),
            (0, 50, 10, 0),
            (4, 50, 0, 0),
            (4, 45, 45, 0),
            (4, 80, 10, 0),
            (4, 45, 10, 1),
            (0, 45, 10, 1),
            (4, 45, 10, 5),
        ] {
            let longest_ns = 200 * u64::from(clients);
            let shape = Shape {
                operations,
                clients,
                values,
                puts_percent,
                deletes_percent,
                unknown_percent,
                longest_ns,
            };
            let of = if values == 0 { "own".to_string() } else { values.to_string() };
            print!(
                "{:<52}",
                format!(
                    "{clients} clients, {puts_percent}% puts of {of} values, {deletes_percent}% deletes, \
                     {unknown_percent}% unknown"
                )
            );
            measure(linearizable(shape, 1));
        }
    }
}

fn measure(mut operations: Vec<locus_history::Operation>) {
    let history = History::new(operations.clone()).unwrap();
    let start = Instant::now();
    let right = check(&history, &Limits::default());
    print!(" {:>10.1}", start.elapsed().as_secs_f64() * 1e3);
    // The last get finds what was put first.
    let first = operations
        .iter()
        .find_map(|o| if let Action::Put(value) = &o.action { Some(value.clone()) } else { None });
    if let Some(get) =
        operations.iter_mut().rev().find(|o| o.is_certain() && matches!(o.action, Action::Get(_)))
    {
        get.action = Action::Get(first);
    }
    let history = History::new(operations).unwrap();
    let start = Instant::now();
    let wrong = check(&history, &Limits::default());
    print!(" {:>12.1}", start.elapsed().as_secs_f64() * 1e3);
    let start = Instant::now();
    let minimal = minimise(&history, b"k", &Limits::default());
    print!(" {:>12.1}", start.elapsed().as_secs_f64() * 1e3);
    let first_line =
        |verdict: locus_history::Verdict| verdict.to_string().lines().next().unwrap_or_default().to_string();
    println!(" {} / {} / {:?}", first_line(right), first_line(wrong), minimal.map(|m| m.operations().len()));
}
