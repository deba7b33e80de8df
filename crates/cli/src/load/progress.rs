//! How far a load is: a bar with rate and time left on a terminal, and the totals at the end.

use crate::size;
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};

/// How many records lie between two looks at the clock.
const RECORDS_PER_LOOK: u64 = 256;
/// How often the bar moves.
const REFRESH: Duration = Duration::from_millis(100);

/// The progress of a load.
pub struct Progress {
    bar: ProgressBar,
    /// How far the file has been read.
    position: Rc<Cell<u64>>,
    begun: Instant,
    shown: Cell<Instant>,
    records: Cell<u64>,
    bytes: Cell<u64>,
}

impl Progress {
    /// Of a file of so many bytes, if that is known, whose position is updated as it is read.
    pub fn new(bytes: Option<u64>, position: Rc<Cell<u64>>) -> Self {
        let bar = match bytes {
            Some(bytes) => ProgressBar::new(bytes).with_style(style(
                "[{bar:40}] {percent}%  {msg}  {bytes}/{total_bytes} ({binary_bytes_per_sec})  {eta} left",
            )),
            None => ProgressBar::new_spinner().with_style(style("{spinner} {msg}  {bytes} read  {elapsed}")),
        };
        let now = Instant::now();
        Self {
            bar,
            position,
            begun: now,
            shown: Cell::new(now),
            records: Cell::default(),
            bytes: Cell::default(),
        }
    }

    /// A record with so many bytes of key and value was stored.
    pub fn stored(&self, bytes: usize) {
        self.records.set(self.records.get() + 1);
        self.bytes.set(self.bytes.get() + bytes as u64);
        if self.records.get().is_multiple_of(RECORDS_PER_LOOK) && self.shown.get().elapsed() >= REFRESH {
            self.show();
        }
    }

    fn show(&self) {
        self.shown.set(Instant::now());
        self.bar.set_position(self.position.get());
        self.bar.set_message(format!("{} records ({}/s)", self.records.get(), self.rate()));
    }

    fn rate(&self) -> u64 {
        (self.records.get() as f64 / self.begun.elapsed().as_secs_f64().max(1e-6)) as u64
    }

    /// Lets others write to the terminal.
    pub fn around(&self, write: impl FnOnce()) {
        self.bar.suspend(write);
    }

    /// Removes the bar and gives the totals.
    pub fn finish(&self) -> String {
        self.bar.finish_and_clear();
        format!(
            "{} records stored, {} of keys and values, in {:.2} s ({} records/s)",
            self.records.get(),
            size::show(self.bytes.get()),
            self.begun.elapsed().as_secs_f64(),
            self.rate()
        )
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is right").progress_chars("=> ")
}
