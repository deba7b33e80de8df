//! A store on machines whose costs are modelled: the same code, the same answers, in the time that the machines take.

use locus_fabric::{
    Address,
    sim::{SimHost, SimNic, SimProcess, SimulationConfig, simulate},
};
use locus_runtime::{channel, world};
use locus_sim::Preset;
use locus_store::{Client, ClientConfig, Design, Server, ServerConfig};
use std::sync::Arc;

fn address() -> Address {
    Address::Sim("server".into())
}

fn serve() -> Server<SimNic> {
    let config = ServerConfig {
        design: Design::find("pilaf").expect("a row of the table"),
        cores: 1,
        memory_bytes: 64 << 20,
        region_bytes: 1 << 20,
        ..ServerConfig::default()
    };
    let server = Server::start(&SimNic::open(), config).expect("a small server starts");
    server.listen(&address()).expect("its address is free");
    server
}

/// Puts and gets from another machine, and says how long a get takes on average, in nanoseconds.
fn put_and_get() -> u64 {
    const KEYS: u64 = 100;
    let client = Client::connect(&SimNic::open(), &[address()], ClientConfig::default()).expect("it listens");
    for number in 0..KEYS {
        client.block_on(client.put(&number.to_le_bytes(), &[number as u8; 100])).expect("there is room");
    }
    let now_ns = || world::current().expect("within a simulation").now_ns();
    let begin_ns = now_ns();
    for number in 0..KEYS {
        let got =
            client.block_on(client.get(&number.to_le_bytes(), <[u8]>::to_vec)).expect("the server lives");
        assert_eq!(got, Some(vec![number as u8; 100]));
    }
    (now_ns() - begin_ns) / KEYS
}

/// Runs both on machines of a preset.
fn get_ns(preset: &str) -> u64 {
    let machine = Preset::find(preset).expect("it comes along").machine;
    let outcome = simulate(SimulationConfig::default(), move || play(&machine));
    outcome.expect("the world ends well").value
}

fn play(machine: &Arc<locus_fabric::sim::performance::Machine>) -> u64 {
    let [near, far] = ["client", "server"].map(|name| SimHost::add_machine(name, machine));
    let _server = SimProcess::spawn_keeper(far, "server", serve);
    let (tell, told) = channel::channel();
    let _client = SimProcess::spawn_on(near, "client", move || {
        let _ = tell.send(put_and_get());
    });
    let get_ns = told.receive().expect("the client ends well");
    assert!(far.nic_usage().expect("a machine").served > 0, "the server's NIC served");
    get_ns
}

#[test]
fn a_store_runs_on_machines_and_takes_their_time() {
    let (apt_ns, nome_ns) = (get_ns("apt"), get_ns("nome"));
    // Two READs at least, of about 2 us each on apt, and slower on nome.
    assert!(apt_ns > 2_000, "{apt_ns}");
    assert!(nome_ns > apt_ns, "{nome_ns} on nome, {apt_ns} on apt");
}
