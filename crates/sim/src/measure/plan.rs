//! Which measurements are taken, and what each is for.

use super::Point;
use crate::calibrate::{ProbeTask, Quantity, Use};

/// A measurement to be taken.
#[derive(Clone, Debug)]
pub struct Planned {
    /// What it is, in words.
    pub what: String,
    /// The program.
    pub point: Point,
    /// Which of its results counts.
    pub quantity: Quantity,
    /// Whether numbers are fitted to it.
    pub used: Use,
}

/// All of them: latencies and rates of READs, WRITEs and echoes of SENDs, short and long, over one queue pair and over
/// several. Those between are checked.
pub fn plan() -> Vec<Planned> {
    use ProbeTask::{Echo, Read, Write};
    use Use::{Checked, Fitted};
    // Task, bytes, window, queue pairs.
    [
        (Read, 16, 1, 1, Fitted),
        (Read, 1024, 1, 1, Checked),
        (Read, 4096, 1, 1, Fitted),
        (Read, 16, 4, 1, Checked),
        (Read, 16, 16, 1, Fitted),
        (Read, 16, 16, 4, Fitted),
        (Read, 1024, 16, 1, Checked),
        (Read, 8192, 16, 1, Fitted),
        (Write, 16, 1, 1, Fitted),
        (Write, 1024, 1, 1, Fitted),
        (Write, 16, 16, 1, Fitted),
        (Write, 16, 16, 4, Fitted),
        (Write, 1024, 16, 1, Checked),
        (Write, 8192, 16, 1, Fitted),
        (Echo, 16, 1, 1, Fitted),
        (Echo, 1024, 1, 1, Checked),
        (Echo, 16, 16, 1, Fitted),
        (Echo, 16, 16, 4, Fitted),
        (Echo, 1024, 16, 1, Checked),
    ]
    .map(|(task, bytes, window, queue_pairs, used)| {
        let point = Point { task, bytes, window, queue_pairs };
        let quantity = if window == 1 { Quantity::LatencyUs } else { Quantity::Mops };
        Planned { what: words(&point), point, quantity, used }
    })
    .into()
}

fn words(point: &Point) -> String {
    let verb = match point.task {
        ProbeTask::Read => "READ",
        ProbeTask::Write => "WRITE",
        ProbeTask::Echo => "echo by SEND",
    };
    let Point { bytes, window, queue_pairs, .. } = point;
    match (window, queue_pairs) {
        (1, 1) => format!("{verb}, {bytes} B, one at a time"),
        (_, 1) => format!("{verb}, {bytes} B, {window} at a time"),
        _ => format!("{verb}, {bytes} B, {window} at a time over each of {queue_pairs} queue pairs"),
    }
}
