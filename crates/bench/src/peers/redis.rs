//! Redis, by its protocol RESP (version 2).

use super::pipeline::{Address, Protocol, Reply, decimal, line, write_decimal};
use super::server::Server;
use crate::options::BenchOptions;
use std::process::Command;

pub(super) struct Redis;

impl Server for Redis {
    const NAME: &'static str = "redis-server";
    const PACKAGE: &'static str = "redis-server";

    fn configure(command: &mut Command, address: &Address, _options: &BenchOptions) {
        match address {
            Address::Tcp(address) => {
                command.args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()]);
            }
            Address::Unix(path) => {
                command.args(["--port", "0", "--unixsocket"]).arg(path);
            }
        }
        // In memory only, as everything here is.
        command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
    }
}

impl Protocol for Redis {
    fn write_get(key: &[u8], requests: &mut Vec<u8>) {
        requests.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
        write_bulk(key, requests);
    }

    fn write_put(key: &[u8], value: &[u8], requests: &mut Vec<u8>) {
        requests.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
        write_bulk(key, requests);
        write_bulk(value, requests);
    }

    fn reply(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, String> {
        let Some((first, length)) = line(bytes)? else { return Ok(None) };
        match (first.first(), first) {
            (_, b"+OK") => Ok(Some((Reply::Stored, length))),
            (_, b"$-1") => Ok(Some((Reply::Missing, length))),
            (Some(b'-'), _) => Ok(Some((Reply::Refused(&first[1..]), length))),
            (Some(b'$'), _) => {
                let value_bytes = decimal(&first[1..])?;
                let Some(rest) = bytes.get(length..length + value_bytes + 2) else { return Ok(None) };
                match rest.strip_suffix(b"\r\n") {
                    Some(value) => Ok(Some((Reply::Value(value), length + value_bytes + 2))),
                    None => Err("a value is not followed by the end of a line".into()),
                }
            }
            _ => Err(format!("{:?}", String::from_utf8_lossy(first))),
        }
    }
}

fn write_bulk(bytes: &[u8], requests: &mut Vec<u8>) {
    requests.push(b'$');
    write_decimal(bytes.len(), requests);
    requests.extend_from_slice(b"\r\n");
    requests.extend_from_slice(bytes);
    requests.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_written_as_the_protocol_says() {
        let mut requests = Vec::new();
        Redis::write_get(b"user1", &mut requests);
        Redis::write_put(b"user2", b"0123456789", &mut requests);
        assert_eq!(
            requests,
            b"*2\r\n$3\r\nGET\r\n$5\r\nuser1\r\n*3\r\n$3\r\nSET\r\n$5\r\nuser2\r\n$10\r\n0123456789\r\n"
        );
    }

    #[test]
    fn replies_are_read_when_they_are_whole() {
        let replies: &[(&[u8], Reply)] = &[
            (b"$4\r\nab\r\n\r\n", Reply::Value(b"ab\r\n")),
            (b"$0\r\n\r\n", Reply::Value(b"")),
            (b"$-1\r\n", Reply::Missing),
            (b"+OK\r\n", Reply::Stored),
            (b"-OOM command not allowed\r\n", Reply::Refused(b"OOM command not allowed")),
        ];
        for (bytes, reply) in replies {
            for part in 0..bytes.len() {
                assert_eq!(Redis::reply(&bytes[..part]).unwrap(), None);
            }
            let longer = [bytes, b"+OK\r\n".as_slice()].concat();
            let (got, length) = Redis::reply(&longer).unwrap().unwrap();
            assert_eq!((&got, length), (reply, bytes.len()));
        }
    }

    #[test]
    fn garbage_is_an_error() {
        assert!(Redis::reply(b"hello\r\n").is_err());
        assert!(Redis::reply(b"$-7\r\n").is_err());
        assert!(Redis::reply(b"$1\r\nabc").is_err());
        assert!(Redis::reply(b"\r\n").is_err());
    }
}
