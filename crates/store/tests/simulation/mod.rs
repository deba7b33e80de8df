//! A server in a simulated world, and clients of it.

use locus_fabric::{
    Address,
    sim::{SimHost, SimNic, SimProcess},
};
use locus_store::{Client, ClientConfig, Server, ServerConfig};

fn address() -> Address {
    Address::Sim("server".into())
}

/// Starts the server in a process of its own.
pub fn serve(config: ServerConfig) -> SimProcess {
    SimProcess::spawn_keeper(SimHost::add("server", 0), "server", move || {
        let server = Server::start(&SimNic::open(), config).unwrap();
        server.listen(&address()).unwrap();
        server
    })
}

/// Connects with it from the calling process.
pub fn connect() -> Client<SimNic> {
    Client::connect(&SimNic::open(), &[address()], ClientConfig::default()).unwrap()
}
