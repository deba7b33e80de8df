//! How a server starts and ends, and whom it lets in.

use crate::harness::{Place, locus};
use rustix::process::Signal;
use std::{
    os::unix::fs::{FileTypeExt, PermissionsExt},
    os::unix::net::UnixListener,
};

#[test]
fn a_signal_ends_the_server_and_nothing_stays_behind() {
    for (signal, name) in [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM")] {
        let place = Place::new();
        let server = place.serve(&[]);
        let metadata = std::fs::metadata(place.socket()).unwrap();
        assert!(metadata.file_type().is_socket());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        // Also with a client that stays.
        let table = server.table();
        table.put("key", "value").unwrap();
        server.end(signal).said(0, &[name]);
        assert_eq!(place.names(), [""; 0]);
        assert!(table.get("key").is_err());
    }
}

#[test]
fn the_default_address_is_the_users_own() {
    let place = Place::new();
    let with_default = |arguments: &[&str]| {
        let mut command = crate::harness::command(arguments);
        command.env("XDG_RUNTIME_DIR", place.path(""));
        command
    };
    let mut server = with_default(&["serve", "--memory", "64MiB"]).spawn().unwrap();
    let mut said = String::new();
    let mut output = std::io::BufReader::new(server.stdout.take().unwrap());
    while !said.contains("\nserving") && std::io::BufRead::read_line(&mut output, &mut said).unwrap() > 0 {}
    assert!(said.contains(&place.address()), "{said}");
    assert!(with_default(&["put", "key", "value"]).status().unwrap().success());
    assert_eq!(with_default(&["get", "key"]).output().unwrap().stdout, b"value");
    crate::harness::signal(&server, Signal::INT);
    assert!(server.wait().unwrap().success());
    // Without the variable, and without a server.
    let ran = crate::harness::command(&["get", "key"]).env_remove("XDG_RUNTIME_DIR").output().unwrap();
    let address = format!("shm:/tmp/locus-{}.sock", rustix::process::getuid().as_raw());
    // Somebody may use the default address of this machine.
    assert!(
        ran.status.success()
            || String::from_utf8_lossy(&ran.stderr).contains(&address)
            || ran.status.code() == Some(1)
    );
}

#[test]
fn several_addresses_lead_to_one_store() {
    let place = Place::new();
    let [first, second] = ["1", "2"].map(|name| format!("shm:{}", place.path(name).display()));
    let server = place.serve(&["--listen", &first, "--listen", &second]);
    locus(&["put", "--connect", &first, "key", "value"]).done();
    assert_eq!(locus(&["get", "--connect", &second, "key"]).done().stdout, b"value");
    server.end(Signal::INT).said(0, &[]);
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn a_second_server_on_the_address_is_refused_and_harms_nobody() {
    let place = Place::new();
    let server = place.serve(&[]);
    server.locus("put", &["key", "value"]).done();
    let pid = server.child.id().to_string();
    place.try_serve(&[]).err().expect("a refusal").said(3, &["taken", &pid, "listen at another path"]);
    assert_eq!(server.value("key"), b"value");
}

#[test]
fn a_foreign_file_at_the_path_is_left_alone() {
    let place = Place::new();
    let file = place.file("locus.sock", "precious");
    place.try_serve(&[]).err().expect("a refusal").said(3, &["not a socket", "another path"]);
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    locus(&["get", "--connect", &place.address(), "key"]).said(3, &["not a socket"]);
}

#[test]
fn a_foreign_server_at_the_path_is_left_alone() {
    let place = Place::new();
    let foreign = UnixListener::bind(place.socket()).unwrap();
    place.try_serve(&[]).err().expect("a refusal").said(3, &["not this one", "another path"]);
    assert!(place.socket().exists());
    // It answers something else, and hangs up.
    let talker = std::thread::spawn(move || {
        let (mut peer, _) = foreign.accept().unwrap();
        // The server that tried came first.
        let _ = std::io::Write::write_all(&mut peer, b"220 smtp ready\r\n");
        let (mut peer, _) = foreign.accept().unwrap();
        let _ = std::io::Write::write_all(&mut peer, b"220 smtp ready\r\n");
    });
    locus(&["get", "--connect", &place.address(), "key"]).said(3, &[&place.address()]);
    talker.join().unwrap();
}

#[test]
fn addresses_that_cannot_be_served_say_why() {
    let place = Place::new();
    let refused = |address: &str, words: &[&str]| {
        place.try_serve(&["--listen", address]).err().expect("a refusal").said(3, words);
    };
    refused("/tmp/locus.sock", &["shm:/path/to/socket"]);
    refused("tcp://localhost", &["unknown scheme"]);
    refused("rdma://host:1", &["RDMA"]);
    refused("rdma:host", &["rdma://host:port"]);
    refused("shm:", &["needs the path"]);
    refused(&format!("shm:/tmp/{}", "x".repeat(108)), &["107 bytes"]);
    refused(&format!("shm:{}", place.path("no/such/directory").display()), &["make the directory first"]);
    let refused = |arguments: &[&str], words: &[&str]| {
        place.try_serve(arguments).err().expect("a refusal").said(3, words);
    };
    refused(&["--cores", "0"], &["cores", "1 to 64"]);
    refused(&["--memory", "1MiB"], &["memory limit"]);
    refused(&["--value-bytes-max", "1GiB"], &["longest value"]);
    refused(&["--clients-max", "0"], &["clients"]);
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn a_client_without_the_token_is_refused() {
    let place = Place::new();
    let token = place.path("token");
    let token = token.to_str().unwrap();
    let server = place.serve(&["--token-file", token]);
    assert!(server.banner.contains("made just now"), "{}", server.banner);
    let metadata = std::fs::metadata(token).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o600);
    assert_eq!(std::fs::read(token).unwrap().trim_ascii().len(), 64);
    server.locus("put", &["key", "value"]).said(3, &["token", "--token-file"]);
    let wrong = place.file("wrong", "f".repeat(64));
    server.locus("put", &["--token-file", wrong.to_str().unwrap(), "key", "value"]).said(3, &["token"]);
    server.locus("get", &["--token-file", "/nonexistent", "key"]).said(3, &["/nonexistent"]);
    server.locus("put", &["--token-file", token, "key", "value"]).done();
    assert_eq!(server.locus("get", &["--token-file", token, "key"]).done().stdout, b"value");
    let stats = server.locus("stats", &["--json", "--token-file", token]).done();
    let stats: serde_json::Value = serde_json::from_slice(&stats.stdout).unwrap();
    assert_eq!(stats[0]["clients_dropped"], 2, "{stats}");
    server.end(Signal::INT).said(0, &[]);
    // The file stays, and serves again.
    let server = place.serve(&["--token-file", token]);
    assert!(!server.banner.contains("made just now"), "{}", server.banner);
    server.locus("put", &["--token-file", token, "key", "value"]).done();
}

#[test]
fn a_token_file_that_keeps_no_secret_is_refused() {
    let place = Place::new();
    let file = place.file("token", "secret");
    let token = file.to_str().unwrap();
    let mode = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    place.try_serve(&["--token-file", token]).err().expect("a refusal").said(3, &["0644", "chmod 600"]);
    mode(0o600);
    place.serve(&["--token-file", token]).end(Signal::INT).said(0, &[]);
    std::fs::write(&file, " \n").unwrap();
    place.try_serve(&["--token-file", token]).err().expect("a refusal").said(3, &["empty"]);
}

#[test]
fn clients_over_the_limit_are_refused() {
    let place = Place::new();
    let server = place.serve(&["--clients-max", "1"]);
    let table = server.table();
    table.put("key", "value").unwrap();
    server.locus("get", &["key"]).said(3, &["limit of 1 clients"]);
    assert!(table.get("key").unwrap().is_some());
}
