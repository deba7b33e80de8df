//! Measures the raw verbs of a real fabric with one client and one server of echoes, and makes a preset from them.
//!
//! | file | what |
//! |---|---|
//! | `point` | one measurement: a verb, a length, a window, a number of queue pairs; the program that takes it |
//! | `plan` | which ones are taken, and what each is for |
//! | `fit` | chooses the numbers of the preset that they show, by running the same program on the model |
//! | `preset` | puts together what was measured, what was fitted, and what is taken from elsewhere |
//! | `write` | the preset as a file, with the origin of each number |
//!
//! What needs more than one client, or verbs and transports that no server of echoes answers, is not measured: those
//! numbers are taken from another preset, and the file says so of each.

mod fit;
mod plan;
mod point;
mod preset;
mod write;

pub use fit::STAGES;
use fit::fit;
pub use plan::{Planned, plan};
pub use point::{Effort, MeasureError, Point, Taken, take};
pub use preset::{Declared, FitError, preset};
use write::{Origin, text};
