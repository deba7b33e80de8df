//! The token file: a secret that a client must show beside being let through to the socket.
//!
//! The server makes the file, with mode 0600 and random content, if there is none. What counts is the content without
//! the white space around it, so that a file written by an editor or `echo` serves as well.

use anyhow::{Context, bail};
use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

/// The longest token in bytes.
const TOKEN_BYTES_MAX: u64 = 4096;

/// Reads the token that a client shows.
pub fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let file = File::open(path).with_context(|| format!("opening the token file {}", path.display()))?;
    content(file, path)
}

/// Reads the token that a server asks for, or makes one. Says whether it was made.
pub fn read_or_make(path: &Path) -> anyhow::Result<(Vec<u8>, bool)> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => Ok((make(file, path)?, true)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let file =
                File::open(path).with_context(|| format!("opening the token file {}", path.display()))?;
            let mode = file.metadata()?.mode();
            if mode & 0o077 != 0 {
                bail!(
                    "the token file {0} can be used by others (mode {1:04o}), so it keeps no secret: \
                     chmod 600 {0}",
                    path.display(),
                    mode & 0o7777
                );
            }
            Ok((content(file, path)?, false))
        }
        Err(error) => Err(error).with_context(|| format!("making the token file {}", path.display())),
    }
}

fn make(mut file: File, path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).context("drawing a random token")?;
    let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(file, "{token}").with_context(|| format!("writing the token file {}", path.display()))?;
    Ok(token.into_bytes())
}

fn content(file: File, path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(TOKEN_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("reading the token file {}", path.display()))?;
    let token = bytes.trim_ascii();
    if token.is_empty() {
        bail!("the token file {} is empty: remove it, and the server makes one", path.display());
    }
    if bytes.len() as u64 > TOKEN_BYTES_MAX {
        bail!(
            "the token file {} is longer than {TOKEN_BYTES_MAX} bytes: is it the right one?",
            path.display()
        );
    }
    Ok(token.to_vec())
}
