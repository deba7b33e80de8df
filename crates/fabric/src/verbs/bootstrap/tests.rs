//! Connections under good and bad peers. Whoever waits here waits for an event, with a generous deadline.

use super::{
    frame::{FACTS_MAX, MESSAGE_BYTES_MAX, Message},
    hello::{self, HELLO_BYTES, HELLO_TIMEOUT, VERSION, Verdict},
    inbox::INBOX_BYTES_MAX,
    lease::{HEARTBEAT, LEASE},
    listening::STRANGERS_MAX,
    turns::CONNECTS_MAX,
    *,
};
use crate::FabricError;
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, Weak,
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

/// Longer than anything here takes on a crowded machine.
const LONG: Duration = Duration::from_secs(30);

fn listen() -> Listening {
    Listening::bind("127.0.0.1", 0).unwrap()
}

/// A connection to `listening`, and its other end.
fn link(listening: &Listening) -> (Connection, Connection) {
    let port = listening.address().port();
    std::thread::scope(|scope| {
        let client = scope.spawn(move || Connection::connect("127.0.0.1", port).unwrap());
        let server = accept(listening);
        (client.join().unwrap(), server)
    })
}

fn accept(listening: &Listening) -> Connection {
    listening.accept(LONG).unwrap().expect("a client connects")
}

fn receive(connection: &Connection) -> Message {
    connection.receive(LONG).unwrap().expect("a message was sent")
}

/// A socket that anybody could open.
fn stranger(listening: &Listening) -> TcpStream {
    let socket = TcpStream::connect(listening.address()).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

fn good_hello() -> [u8; HELLO_BYTES] {
    hello::encode(VERSION, Verdict::Welcome, HEARTBEAT)
}

/// A peer by hand, after the hellos.
fn by_hand(listening: &Listening) -> (TcpStream, Connection) {
    let mut socket = stranger(listening);
    socket.write_all(&good_hello()).unwrap();
    let connection = accept(listening);
    let mut answer = [0; HELLO_BYTES];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(answer, good_hello());
    (socket, connection)
}

/// Reports each end it is told of.
struct Witness(Mutex<Sender<Instant>>);

impl Ended for Witness {
    fn ended(&self) {
        let _ = self.0.lock().unwrap().send(Instant::now());
    }
}

fn witness(connection: &Connection) -> (Arc<Witness>, Receiver<Instant>) {
    let (sender, ends) = channel();
    let witness = Arc::new(Witness(Mutex::new(sender)));
    let weak: Weak<Witness> = Arc::downgrade(&witness);
    connection.on_end(weak);
    (witness, ends)
}

/// Bytes that differ from place to place.
fn bytes(length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn assert_lost(result: Result<Option<Message>, FabricError>) {
    assert!(matches!(result, Err(FabricError::PeerLost { .. })), "{result:?}");
}

fn assert_protocol<T: std::fmt::Debug>(result: Result<T, FabricError>, says: &[&str]) {
    let Err(FabricError::Protocol { what, .. }) = &result else { panic!("{result:?}") };
    says.iter().for_each(|say| assert!(what.contains(say), "{what}"));
}

#[test]
fn messages_of_all_sizes_to_the_limit() {
    let listening = listen();
    for (near, far) in [link(&listening), Connection::pair().unwrap()] {
        assert!(near.alive() && far.alive());
        assert_eq!(near.receive(Duration::ZERO).unwrap(), None);
        let mut sizes = vec![(0, vec![]), (1, vec![0]), (0, vec![1, 0, 5]), (100, vec![3; FACTS_MAX])];
        sizes.extend([
            (MESSAGE_BYTES_MAX, vec![]),
            (0, vec![MESSAGE_BYTES_MAX]),
            (MESSAGE_BYTES_MAX - 256, vec![1; 256]),
        ]);
        sizes.extend((0..20).map(|power| ((1 << power) - 1, vec![1 << power; 1])));
        for (message, facts) in sizes {
            let facts: Vec<_> = facts.into_iter().map(bytes).collect();
            let message = bytes(message);
            // A message at the limit may be more than the kernel holds.
            std::thread::scope(|scope| {
                scope.spawn(|| near.send(&message, &facts).unwrap());
                assert_eq!(receive(&far), (message.clone(), facts.clone()));
                scope.spawn(|| far.send(&message, &facts).unwrap());
                assert_eq!(receive(&near), (message.clone(), facts.clone()));
            });
        }
    }
}

#[test]
fn messages_keep_their_order_among_many_senders() {
    let (near, far) = link(&listen());
    std::thread::scope(|scope| {
        for sender in 0..4_u8 {
            let near = near.clone();
            scope.spawn(move || {
                for number in 0..500_u32 {
                    near.send(&[sender], &[number.to_le_bytes().to_vec(), bytes(number as usize * 7)])
                        .unwrap();
                }
            });
        }
        let mut next = [0_u32; 4];
        for _ in 0..2000 {
            let (message, facts) = receive(&far);
            let number = &mut next[usize::from(message[0])];
            assert_eq!(facts, [number.to_le_bytes().to_vec(), bytes(*number as usize * 7)]);
            *number += 1;
        }
    });
}

#[test]
fn what_is_over_the_limit_is_not_sent() {
    let (near, far) = Connection::pair().unwrap();
    for (message, facts) in [
        (vec![0; MESSAGE_BYTES_MAX + 1], vec![]),
        (vec![0; MESSAGE_BYTES_MAX], vec![vec![0]]),
        (vec![], vec![vec![]; FACTS_MAX + 1]),
    ] {
        assert!(matches!(near.send(&message, &facts), Err(FabricError::Limit { .. })));
    }
    near.send(b"fine", &[]).unwrap();
    assert_eq!(receive(&far).0, b"fine");
}

#[test]
fn garbage_after_hello_ends_its_connection_alone() {
    let listening = listen();
    let (near, far) = link(&listening);
    let over = (MESSAGE_BYTES_MAX as u32 + 1).to_le_bytes();
    for garbage in [
        vec![b'x'; 100],
        [&[1, 0, 0, 0], &over[..]].concat(),
        vec![1, 0, 2, 0, 8, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9],
    ] {
        let (mut socket, connection) = by_hand(&listening);
        let (_witness, ends) = witness(&connection);
        // A message, then garbage: the message counts.
        socket.write_all(&[1, 0, 0, 0, 2, 0, 0, 0, b'o', b'k']).unwrap();
        socket.write_all(&garbage).unwrap();
        ends.recv_timeout(LONG).unwrap();
        assert_eq!(receive(&connection).0, b"ok");
        assert_protocol(connection.receive(LONG), &[]);
        assert_protocol(connection.send(b"", &[]), &[]);
        assert!(!connection.alive());
    }
    near.send(b"unharmed", &[]).unwrap();
    assert_eq!(receive(&far).0, b"unharmed");
}

#[test]
fn a_client_of_another_version_is_refused_and_told_so() {
    let listening = listen();
    let other = hello::encode(VERSION + 7, Verdict::Welcome, HEARTBEAT);
    let rare = hello::encode(VERSION, Verdict::Welcome, LEASE);
    let ours = format!("version {VERSION}");
    let theirs = format!("version {}", VERSION + 7);
    for (said, says) in [
        (&other[..], &[&theirs, &ours, "same release"][..]),
        (b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n", &[&ours, "same release"]),
        (&rare, &["heartbeat", "same release"]),
    ] {
        let mut socket = stranger(&listening);
        socket.write_all(said).unwrap();
        assert_protocol(listening.accept(LONG), says);
        let mut refusal = Vec::new();
        socket.read_to_end(&mut refusal).unwrap();
        assert_eq!(refusal, hello::encode(VERSION, Verdict::Refused, HEARTBEAT));
    }
    let (near, far) = link(&listening);
    near.send(b"next", &[]).unwrap();
    assert_eq!(receive(&far).0, b"next");
}

#[test]
fn a_server_of_another_version_is_refused() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let ours = format!("version {VERSION}");
    let theirs = format!("version {}", VERSION + 1);
    for (answer, says) in [
        (hello::encode(VERSION + 1, Verdict::Refused, HEARTBEAT), &[&theirs, &ours, "same release"][..]),
        (hello::encode(VERSION, Verdict::Refused, HEARTBEAT), &["refused", "same release"]),
        (*b"220 ready to go\r", &[&ours, "same release"]),
    ] {
        std::thread::scope(|scope| {
            let client = scope.spawn(|| Connection::connect("127.0.0.1", port));
            let (mut socket, _) = listener.accept().unwrap();
            socket.write_all(&answer).unwrap();
            assert_protocol(client.join().unwrap(), says);
        });
    }
    std::thread::scope(|scope| {
        let client = scope.spawn(|| Connection::connect("127.0.0.1", port));
        drop(listener.accept().unwrap());
        let refused = client.join().unwrap();
        assert!(
            matches!(&refused, Err(FabricError::NotServed { reason, .. }) if reason.contains("hung up")),
            "{refused:?}"
        );
    });
}

#[test]
fn strangers_who_say_nothing_hold_up_nobody() {
    let listening = listen();
    let mut silent = Vec::new();
    for _ in 0..3 {
        // Some before any `accept`, more than there is room for, and some that stop in their hello.
        for said in 0..STRANGERS_MAX / 2 {
            let mut socket = stranger(&listening);
            socket.write_all(&good_hello()[..said % HELLO_BYTES]).unwrap();
            silent.push(socket);
        }
        let start = Instant::now();
        let (near, far) = link(&listening);
        assert!(start.elapsed() < HELLO_TIMEOUT, "the client waited for strangers");
        near.send(b"me first", &[]).unwrap();
        assert_eq!(receive(&far).0, b"me first");
    }
    // The oldest were replaced.
    assert_eq!(silent[0].read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn a_client_who_said_hello_is_not_replaced_by_silent_strangers() {
    let listening = listen();
    let mut client = stranger(&listening);
    client.write_all(&good_hello()).unwrap();
    let _silent: Vec<_> = (0..STRANGERS_MAX + 10).map(|_| stranger(&listening)).collect();
    let accepted = accept(&listening);
    assert_eq!(accepted.peer(), client.local_addr().unwrap().to_string());
}

/// Whoever is heard out of turn could be kept waiting for ever by strangers who keep coming.
#[test]
fn strangers_are_heard_in_the_order_in_which_they_came() {
    let listening = listen();
    let mut sockets: Vec<_> = (0..3).map(|_| stranger(&listening)).collect();
    sockets[0].write_all(&good_hello()).unwrap();
    sockets[1].write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    // This one leaves a gap where it was.
    drop(sockets.remove(2));
    sockets.push(stranger(&listening));
    sockets[2].write_all(b"EHLO somebody\r\n\r\n").unwrap();
    assert_eq!(accept(&listening).peer(), sockets[0].local_addr().unwrap().to_string());
    for socket in &sockets[1..] {
        let Err(FabricError::Protocol { peer, .. }) = listening.accept(LONG) else {
            panic!("it said no hello")
        };
        assert_eq!(peer, socket.local_addr().unwrap().to_string());
    }
}

#[test]
fn a_stranger_who_stays_silent_is_dropped_in_time() {
    let listening = listen();
    let mut silent = stranger(&listening);
    let start = Instant::now();
    assert_protocol(listening.accept(LONG), &["no hello"]);
    assert!(start.elapsed() >= HELLO_TIMEOUT);
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    assert!(listening.accept(Duration::ZERO).unwrap().is_none());
}

#[test]
fn an_end_is_noticed_at_once_and_told_once() {
    let listening = listen();
    let hang_up = |(socket, connection): (TcpStream, Connection)| {
        let told = witness(&connection);
        drop(socket);
        (connection, told)
    };
    let close = |(near, far): (Connection, Connection)| {
        let told = witness(&far);
        near.close();
        assert!(!near.alive());
        (far, told)
    };
    let forget = |(near, far): (Connection, Connection)| {
        let told = witness(&far);
        drop(near.clone());
        assert!(near.alive());
        drop(near);
        (far, told)
    };
    for (far, (_witness, ends)) in [
        hang_up(by_hand(&listening)),
        close(link(&listening)),
        forget(link(&listening)),
        close(Connection::pair().unwrap()),
    ] {
        ends.recv_timeout(LONG).unwrap();
        assert!(!far.alive());
        assert_lost(far.receive(LONG));
        assert!(matches!(far.send(b"", &[]), Err(FabricError::PeerLost { .. })));
        let (_late, late_ends) = witness(&far);
        late_ends.try_recv().expect("told within the call");
        far.close();
        drop(far);
        assert!(ends.try_recv().is_err() && late_ends.try_recv().is_err(), "told once");
    }
}

#[test]
fn our_own_close_is_told_too_and_wakes_who_receives() {
    let (near, _far) = link(&listen());
    let (_witness, ends) = witness(&near);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| near.receive(LONG));
        near.close();
        assert_lost(receiver.join().unwrap());
    });
    ends.try_recv().expect("told within the call");
    near.close();
    assert!(ends.try_recv().is_err());
}

#[test]
fn what_was_sent_before_a_close_arrives() {
    let listening = listen();
    for _ in 0..20 {
        for (near, far) in [link(&listening), Connection::pair().unwrap()] {
            // Unread messages of the peer must not make the kernel forget ours.
            far.send(&bytes(50_000), &[]).unwrap();
            near.send(&bytes(100_000), &[]).unwrap();
            near.close();
            assert_eq!(receive(&far).0, bytes(100_000));
            assert_lost(far.receive(LONG));
        }
    }
}

#[test]
fn a_silent_peer_is_noticed_within_a_lease() {
    let listening = listen();
    let (_socket, connection) = by_hand(&listening);
    let start = Instant::now();
    let (_witness, ends) = witness(&connection);
    let noticed = ends.recv_timeout(LONG).unwrap().duration_since(start);
    assert!(noticed > LEASE - HEARTBEAT && noticed < LEASE * 10, "noticed after {noticed:?}");
    assert_lost(connection.receive(LONG));
}

#[test]
fn a_peer_that_does_not_receive_lives_and_loses_nothing() {
    let listening = listen();
    let count = INBOX_BYTES_MAX / MESSAGE_BYTES_MAX * 8;
    for (near, far) in [link(&listening), Connection::pair().unwrap()] {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..count {
                    near.send(&bytes(MESSAGE_BYTES_MAX - number), &[vec![number as u8; number]]).unwrap();
                }
            });
            // By now everything between the two is full, and neither hears the other's heartbeats but `near`.
            assert_eq!(near.receive(LEASE * 2 + LEASE / 2).unwrap(), None);
            assert!(near.alive() && far.alive());
            for number in 0..count {
                assert_eq!(
                    receive(&far),
                    (bytes(MESSAGE_BYTES_MAX - number), vec![vec![number as u8; number]])
                );
            }
        });
        assert!(near.alive() && far.alive());
        far.send(b"still here", &[]).unwrap();
        assert_eq!(receive(&near).0, b"still here");
    }
}

/// A peer by hand that has filled the inbox of its other end, and how many messages that took.
fn by_hand_with_full_inbox(message: &[u8]) -> (TcpStream, Connection, usize) {
    let (mut socket, connection) = by_hand(&listen());
    let mut frame = Vec::new();
    frame::encode(message, &[], &mut frame);
    let count = INBOX_BYTES_MAX / message.len();
    (0..count).for_each(|_| socket.write_all(&frame).unwrap());
    let start = Instant::now();
    while !connection.wire.inbox.is_full() {
        assert!(start.elapsed() < LONG);
        std::thread::yield_now();
    }
    (socket, connection, count)
}

#[test]
fn a_full_inbox_hides_no_close_and_loses_nothing_by_it() {
    let message = bytes(MESSAGE_BYTES_MAX);
    let (mut socket, connection, count) = by_hand_with_full_inbox(&message);
    let (_witness, ends) = witness(&connection);
    let mut frame = Vec::new();
    frame::encode(b"the last", &[], &mut frame);
    socket.write_all(&frame).unwrap();
    // Not dropped: with heartbeats unread, its kernel would forget what it has not sent.
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    ends.recv_timeout(LONG).unwrap();
    (0..count).for_each(|_| assert_eq!(receive(&connection).0, message));
    assert_eq!(receive(&connection).0, b"the last");
    assert_lost(connection.receive(LONG));
}

#[test]
fn a_full_inbox_hides_no_death() {
    let message = bytes(MESSAGE_BYTES_MAX);
    let (mut socket, connection, count) = by_hand_with_full_inbox(&message);
    let (_witness, ends) = witness(&connection);
    // Not even the end of the stream fits between the two any more.
    socket.set_nonblocking(true).unwrap();
    let heartbeats: Vec<_> = frame::HEARTBEAT_FRAME.iter().copied().cycle().take(1 << 20).collect();
    while socket.write(&heartbeats).is_ok() {}
    drop(socket);
    ends.recv_timeout(LONG).unwrap();
    (0..count).for_each(|_| assert_eq!(receive(&connection).0, message));
    assert_lost(connection.receive(LONG));
}

#[test]
fn a_peer_that_never_reads_is_given_up_by_a_sender() {
    let (mut socket, connection) = by_hand(&listen());
    std::thread::scope(|scope| {
        let (stop, stopped) = channel::<()>();
        // It says that it lives, so that only its not reading can end the connection.
        scope.spawn(move || {
            while stopped.recv_timeout(HEARTBEAT).is_err()
                && socket.write_all(&frame::HEARTBEAT_FRAME).is_ok()
            {}
        });
        let message = bytes(MESSAGE_BYTES_MAX);
        let refused = std::iter::repeat_with(|| connection.send(&message, &[])).find(Result::is_err).unwrap();
        assert_protocol(refused, &["unread"]);
        assert!(!connection.alive());
        let _ = stop.send(());
    });
}

#[test]
fn a_dead_peer_is_noticed_by_a_sender_too() {
    let (near, far) = link(&listen());
    let message = bytes(MESSAGE_BYTES_MAX);
    drop(far);
    let refused = std::iter::repeat_with(|| near.send(&message, &[])).find(Result::is_err).unwrap();
    assert!(matches!(refused, Err(FabricError::PeerLost { .. })), "{refused:?}");
    assert!(!near.alive());
}

#[test]
fn ipv6_and_names_work() {
    for host in ["::1", "[::1]"] {
        let listening = Listening::bind(host, 0).unwrap();
        let port = listening.address().port();
        std::thread::scope(|scope| {
            let client = scope.spawn(move || Connection::connect(host, port).unwrap());
            let server = accept(&listening);
            let client = client.join().unwrap();
            assert_eq!(client.peer(), format!("[::1]:{port}"));
            assert!(server.peer().starts_with("[::1]:"));
            client.send(b"six", &[]).unwrap();
            assert_eq!(receive(&server).0, b"six");
        });
    }
    // It may resolve to ::1 first, where nobody listens.
    let listening = listen();
    let port = listening.address().port();
    std::thread::scope(|scope| {
        let client = scope.spawn(move || Connection::connect("localhost", port).unwrap());
        accept(&listening);
        assert_eq!(client.join().unwrap().peer(), format!("127.0.0.1:{port}"));
    });
}

#[test]
fn addresses_that_do_not_serve_say_why() {
    let listening = listen();
    let port = listening.address().port();
    let taken = Listening::bind("127.0.0.1", port);
    assert!(
        matches!(&taken, Err(FabricError::Taken { reason, .. }) if reason.contains("another port")),
        "{taken:?}"
    );
    drop(listening);
    let nobody = Connection::connect("127.0.0.1", port);
    assert!(
        matches!(&nobody, Err(FabricError::NotServed { reason, .. }) if reason.contains("start a server")),
        "{nobody:?}"
    );
    let foreign = Listening::bind("192.0.2.1", 0);
    assert!(
        matches!(&foreign, Err(FabricError::BadAddress { reason, .. }) if reason.contains("no interface")),
        "{foreign:?}"
    );
    let nameless = Connection::connect("no host has this name", 1);
    assert!(matches!(nameless, Err(FabricError::BadAddress { .. })), "{nameless:?}");
}

/// When a server comes back, all clients of a process are there at once; they go to it a few at a time.
#[test]
fn a_crowd_connects_a_few_at_a_time() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    const CROWD: usize = 4 * CONNECTS_MAX;
    std::thread::scope(|scope| {
        let crowd: Vec<_> =
            (0..CROWD).map(|_| scope.spawn(move || Connection::connect("127.0.0.1", port))).collect();
        // Nobody is answered until all who have a turn are there; the kernel accepts for those who come all the same.
        let mut unanswered: Vec<_> = (0..CONNECTS_MAX).map(|_| listener.accept().unwrap().0).collect();
        listener.set_nonblocking(true).unwrap();
        let mut answered = Vec::new();
        while let Some(mut socket) = unanswered.pop() {
            let more = listener.accept();
            assert!(more.is_err(), "one more than {CONNECTS_MAX} connects at a time");
            socket.set_nonblocking(false).unwrap();
            socket.write_all(&good_hello()).unwrap();
            answered.push(socket);
            // Its place is taken by another, until there is none.
            if answered.len() + unanswered.len() < CROWD {
                unanswered.push(accept_by(&listener));
            }
        }
        crowd.into_iter().for_each(|client| drop(client.join().unwrap().unwrap()));
    });
}

/// Accepts on a socket that does not block.
fn accept_by(listener: &TcpListener) -> TcpStream {
    let start = Instant::now();
    loop {
        if let Ok((socket, _)) = listener.accept() {
            return socket;
        }
        assert!(start.elapsed() < LONG, "nobody connects");
        std::thread::yield_now();
    }
}

#[test]
fn hundreds_may_wait_to_be_accepted() {
    let listening = listen();
    // More than std lets wait. Each gets through at once, where one beyond the backlog would wait for a second or more.
    let waiting: Vec<_> = (0..300)
        .map(|_| TcpStream::connect_timeout(&listening.address(), Duration::from_millis(900)).unwrap())
        .collect();
    drop(waiting);
}

/// Strangers who say nothing use up the process's descriptors; whoever says hello is heard all the same. The limit is one of
/// the process, so the test runs in one of its own.
#[test]
fn silent_strangers_leave_descriptors_to_others() {
    const ALONE: &str = "LOCUS_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = "verbs::bootstrap::tests::silent_strangers_leave_descriptors_to_others";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let ran = alone.args(["--exact", name, "--test-threads", "1"]).env(ALONE, "").output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::os::fd::AsRawFd;
    let listening = listen();
    // The watch of connections has a descriptor, too.
    let _link = link(&listening);
    let mut silent: Vec<_> = (0..10).map(|_| stranger(&listening)).collect();
    let mut client = stranger(&listening);
    client.write_all(&good_hello()).unwrap();
    // Four are left: for fewer than the strangers.
    let next = client.try_clone().unwrap().as_raw_fd() as u64;
    let limit = Rlimit { current: Some(next + 4), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let accepted = accept(&listening);
    assert_eq!(accepted.peer(), client.local_addr().unwrap().to_string());
    assert_eq!(silent[0].read(&mut [0]).unwrap_or(0), 0, "the oldest one was sent away");
    drop(accepted);
    // Without any stranger to send away it is an error.
    listening.accept(Duration::ZERO).unwrap();
    drop(listening);
    let listening = listen();
    let _waiting = stranger(&listening);
    let none = Rlimit { current: Some(0), ..limit };
    setrlimit(Resource::Nofile, none).unwrap();
    let error = listening.accept(LONG).map(drop).unwrap_err().to_string();
    assert!(error.contains("accepting a connection"), "{error}");
}
