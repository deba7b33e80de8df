//! What happens to operations when the link to a living server breaks.

use super::{Client, ClientConfig, Server as Known};
use crate::{Server, ServerConfig};
use locus_fabric::{Address, Link, shm::ShmNic};
use std::{
    future::Future,
    pin::pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

fn serve(name: &str) -> (ShmNic, Server<ShmNic>, Client<ShmNic>) {
    let nic = ShmNic::open().unwrap();
    let config = ServerConfig { memory_bytes: 64 << 20, region_bytes: 4 << 20, ..ServerConfig::default() };
    let server = Server::start(&nic, config).unwrap();
    let path = std::env::temp_dir().join(format!("locus-{name}-{}.sock", std::process::id()));
    let address = server.listen(&Address::Shm(path)).unwrap();
    let client = Client::connect(&nic, &[address], ClientConfig::default()).unwrap();
    (nic, server, client)
}

fn sever(server: &Known<ShmNic>) {
    server.connection.borrow().as_ref().unwrap().link.close();
}

#[test]
fn the_next_operation_connects_again() {
    let (_nic, _server, client) = serve("again");
    client.block_on(client.put(b"key", b"value")).unwrap();
    let before = Rc::clone(client.servers[0].connection.borrow().as_ref().unwrap());
    sever(&client.servers[0]);
    // The first one may still find out.
    let found = client.block_on(client.get(b"key", <[u8]>::to_vec));
    let found = found.or_else(|_| client.block_on(client.get(b"key", <[u8]>::to_vec)));
    assert_eq!(found.unwrap().unwrap(), b"value");
    assert!(!Rc::ptr_eq(&before, client.servers[0].connection.borrow().as_ref().unwrap()));
    assert_eq!(client.counters().reconnects.get(), 1);
}

#[test]
fn a_put_under_way_goes_on_over_the_new_link_and_is_made_once() {
    let (_nic, _server, client) = serve("once");
    for round in 0..50u64 {
        let before = client.block_on(client.put(b"key", &round.to_le_bytes())).unwrap();
        let after = {
            let mut put = pin!(client.put(b"key", b"under way"));
            let mut context = Context::from_waker(Waker::noop());
            // Sent, and perhaps answered; some rounds sever before, some after the server has seen it.
            let mut first = put.as_mut().poll(&mut context);
            for _ in 0..round * 20 {
                if first.is_pending() {
                    first = put.as_mut().poll(&mut context);
                }
            }
            sever(&client.servers[0]);
            match first {
                Poll::Ready(version) => version.unwrap(),
                Poll::Pending => client.block_on(put).unwrap(),
            }
        };
        // The version grows with every change of the partition: by one, if the put was made once.
        assert_eq!(after, before + 1, "round {round}");
        let next = client.block_on(client.put(b"key", b"next"));
        let next = next.or_else(|_| client.block_on(client.put(b"key", b"next"))).unwrap();
        assert_eq!(next, after + 1, "round {round}");
    }
    // A put that is answered before anybody looks at the severed link leaves the reconnect to the next round.
    assert!(client.counters().reconnects.get() >= 25);
}
