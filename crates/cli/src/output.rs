//! Writes to standard output, whose reader may go away at any time.

use std::io::{self, IsTerminal, Write};

/// Writes text to standard output.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes bytes to standard output as they are; on a terminal a line break follows, so that the prompt stands alone.
pub fn print_bytes(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    if out.is_terminal() && !bytes.ends_with(b"\n") {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Whether an error means that the reader of our output has gone.
pub fn broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Rows of names and values, the values aligned.
pub fn aligned<'a>(rows: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let rows: Vec<_> = rows.into_iter().collect();
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("  {name:width$}  {value}\n")).collect()
}
