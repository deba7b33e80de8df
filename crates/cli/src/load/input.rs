//! The file to load: its length if it has one, and how far it has been read.

use anyhow::{Context, bail};
use std::{
    cell::Cell,
    fs::File,
    io::{self, Read},
    path::Path,
    rc::Rc,
};

/// A file or standard input.
pub struct Input {
    source: Box<dyn Read>,
    bytes: Option<u64>,
    position: Rc<Cell<u64>>,
}

impl Input {
    /// Opens a file; `-` is standard input.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let position = Rc::default();
        if path == Path::new("-") {
            return Ok(Self { source: Box::new(io::stdin().lock()), bytes: None, position });
        }
        let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            bail!("{} is a directory: give a file, or - for standard input", path.display());
        }
        // A pipe has no length.
        let bytes = metadata.is_file().then_some(metadata.len());
        Ok(Self { source: Box::new(file), bytes, position })
    }

    /// How long it is, if that is known.
    pub fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// How many bytes have been read.
    pub fn position(&self) -> Rc<Cell<u64>> {
        self.position.clone()
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.source.read(into)?;
        self.position.set(self.position.get() + bytes as u64);
        Ok(bytes)
    }
}
