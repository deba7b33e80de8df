//! What a client can be told, with defaults that work.

use std::time::Duration;

/// The configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// What the server's token file holds; empty without one.
    pub token: Vec<u8>,
    /// Insists on a design, by name.
    pub design: Option<String>,
    /// Where gets run, in place of what the server's design says.
    pub reads: Option<crate::Locus>,
    /// How many operations may be under way at once: READs and requests per core. At most the server's window.
    pub window: usize,
    /// How often a get that runs at the client reads again because a writer was changing what it read, before it asks the
    /// server.
    pub retries: usize,
    /// How long the server may take to answer while a connection is set up.
    pub patience: Duration,
    /// How long the server may take to answer a request; then the operation fails as
    /// [`StoreError::Unanswered`](crate::StoreError::Unanswered). That shows up to a quarter later, and half a second later where
    /// the client sleeps. A server that is gone shows sooner, as does one that is silent for two seconds over UC and UD, where requests
    /// are repeated, and only so often.
    pub timeout: Duration,
    /// The longest pause between two attempts to connect again; each is shortened by chance, to half of it at least.
    pub reconnect_pause_max: Duration,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            token: Vec::new(),
            design: None,
            reads: None,
            window: 16,
            retries: 32,
            patience: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            reconnect_pause_max: Duration::from_millis(250),
        }
    }
}
