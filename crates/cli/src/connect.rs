//! How commands find a server: the addresses and the token that they share.

use crate::token;
use clap::Args;
use locus::{ClientConfig, Table};
use std::{path::PathBuf, time::Duration};

/// Where the server is.
#[derive(Args, Debug)]
pub struct Connect {
    /// Address of the server, as it printed it; several times for a store of several servers, in the same order for
    /// all clients [default: shm:$XDG_RUNTIME_DIR/locus.sock, or shm:/tmp/locus-UID.sock without that]
    #[arg(long, value_name = "ADDR")]
    connect: Vec<String>,
    /// The server's token file, if it has one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// How long the server may take to answer, when the command connects and then to each request
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    timeout: Duration,
}

impl Connect {
    /// Connects, with up to `window` operations under way.
    pub fn table(&self, window: usize) -> anyhow::Result<Table> {
        let token = self.token_file.as_deref().map(token::read).transpose()?.unwrap_or_default();
        let (timeout, patience) = (self.timeout, self.timeout);
        let config = ClientConfig { token, window, timeout, patience, ..ClientConfig::default() };
        let addresses = self.addresses();
        locus::connect_with(&addresses, config).map_err(|error| {
            // Some errors name the process that was met there, and not the address.
            let named = addresses.iter().any(|address| error.to_string().contains(address.as_str()));
            let error = anyhow::Error::new(error);
            if named { error } else { error.context(format!("connecting with {}", addresses.join(", "))) }
        })
    }

    /// The addresses given, or the default.
    pub fn addresses(&self) -> Vec<String> {
        if self.connect.is_empty() { vec![default_address()] } else { self.connect.clone() }
    }
}

/// A time that somebody may want to wait: a millisecond to a day.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().map_err(|_| format!("{text:?} is no number"))?;
    if (0.001..=86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("a timeout takes 0.001 to 86400 seconds".into())
    }
}

/// Where this user's server is when nothing is said.
pub fn default_address() -> String {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty()) {
        Some(directory) => format!("shm:{}", PathBuf::from(directory).join("locus.sock").display()),
        None => format!("shm:/tmp/locus-{}.sock", rustix::process::getuid().as_raw()),
    }
}
