//! Whoever can open the socket can say anything on it, or nothing: no client and not the server may notice.

use crate::roles::{Actor, Client, Place};
use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

fn stranger(place: &Place) -> UnixStream {
    UnixStream::connect(place.path()).expect("the server listens")
}

pub fn that_say_nothing_block_nobody() {
    let place = Place::new();
    let mut server = Actor::serve(&place);
    let mut early = Client::connect(&place.address());
    let mut silent = Vec::new();
    for word in 0..100 {
        silent.push(stranger(&place));
        if word % 10 == 0 {
            Client::connect(&place.address()).echo(word).expect("an echo beside strangers");
            early.echo(word).expect("an echo beside strangers");
        }
    }
    // One that says its first bytes and stops is no better.
    for bytes in 1..40 {
        let mut stranger = stranger(&place);
        let _ = stranger.write_all(&[b'L'; 40][..bytes]);
        silent.push(stranger);
    }
    Client::connect(&place.address()).echo(1).expect("an echo beside strangers");
    early.echo(200).expect("an echo beside strangers");
    assert!(server.runs());
}

/// SplitMix64, as bytes.
fn garbage(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    std::iter::repeat_with(|| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 27)).to_le_bytes()
    })
    .flatten()
    .take(bytes)
    .collect()
}

pub fn that_send_garbage_harm_nobody() {
    let place = Place::new();
    let mut server = Actor::serve(&place);
    let mut early = Client::connect(&place.address());
    // What a server says first is a model of what one may say to it.
    let mut hello = vec![0; 256];
    let mut model = stranger(&place);
    model.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let heard = model.read(&mut hello).unwrap_or(0);
    hello.truncate(heard);
    for seed in 0..300 {
        let mut stranger = stranger(&place);
        let said = match seed % 4 {
            0 => garbage(seed, seed as usize % 64 + 1),
            1 => garbage(seed, 70_000),
            // A head that begins well and announces something absurd.
            2 => [b"LCS1".as_slice(), &garbage(seed, 400)].concat(),
            _ => {
                let mut said = [b"LCS1".as_slice(), &[0; 28]].concat();
                if !hello.is_empty() {
                    said.clone_from(&hello);
                }
                let place = (seed as usize / 4) % said.len();
                said[place] = said[place].wrapping_add(1 + garbage(seed, 1)[0] % 255);
                said
            }
        };
        // The server may hang up in the middle of it.
        let _ = stranger.write_all(&said);
        if seed % 25 == 0 {
            Client::connect(&place.address()).echo(seed).expect("an echo beside strangers");
            early.echo(seed).expect("an echo beside strangers");
        }
    }
    Client::connect(&place.address()).echo(1).expect("an echo beside strangers");
    early.echo(1000).expect("an echo beside strangers");
    assert!(server.runs());
}

pub fn that_leave_at_once_harm_nobody() {
    let place = Place::new();
    let mut server = Actor::serve(&place);
    let mut early = Client::connect(&place.address());
    for word in 0..300 {
        drop(stranger(&place));
        if word % 25 == 0 {
            Client::connect(&place.address()).echo(word).expect("an echo beside strangers");
            early.echo(word).expect("an echo beside strangers");
        }
    }
    assert!(server.runs());
}
