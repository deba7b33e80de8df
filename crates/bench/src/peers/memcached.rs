//! memcached, by its meta commands (`mg`, `ms`; protocol.txt of memcached 1.6), whose replies do not repeat the key.

use super::pipeline::{Address, Protocol, Reply, decimal, line, write_decimal};
use super::server::Server;
use crate::options::BenchOptions;
use std::process::Command;

pub(super) struct Memcached;

impl Server for Memcached {
    const NAME: &'static str = "memcached";
    const PACKAGE: &'static str = "memcached";

    fn configure(command: &mut Command, address: &Address, options: &BenchOptions) {
        match address {
            Address::Tcp(address) => {
                command.args(["-l", &address.ip().to_string(), "-p", &address.port().to_string()]);
            }
            Address::Unix(path) => {
                command.arg("-s").arg(path);
            }
        }
        // One thread; room for twice the records with memcached's header and slab classes, so that none is evicted.
        let item_bytes = (options.key_bytes + options.value_bytes + 100) as u64;
        let memory_mib = ((options.records * item_bytes * 5 / 2) >> 20) + 128;
        command.args(["-U", "0", "-t", "1", "-m", &memory_mib.to_string()]);
        // Items up to the value's size, and no turn to other connections before a whole window is served.
        let item_max = (item_bytes + (16 << 10)).max(1 << 20);
        command.args(["-I", &item_max.to_string()]);
        let window = options.windows.iter().copied().max().unwrap_or(1);
        command.args(["-R", &window.max(20).to_string()]);
        // memcached refuses to run as root unless told so.
        if nix::unistd::geteuid().is_root() {
            command.args(["-u", "root"]);
        }
    }
}

impl Protocol for Memcached {
    fn write_get(key: &[u8], requests: &mut Vec<u8>) {
        requests.extend_from_slice(b"mg ");
        requests.extend_from_slice(key);
        requests.extend_from_slice(b" v\r\n");
    }

    fn write_put(key: &[u8], value: &[u8], requests: &mut Vec<u8>) {
        requests.extend_from_slice(b"ms ");
        requests.extend_from_slice(key);
        requests.push(b' ');
        write_decimal(value.len(), requests);
        requests.extend_from_slice(b"\r\n");
        requests.extend_from_slice(value);
        requests.extend_from_slice(b"\r\n");
    }

    fn reply(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, String> {
        let Some((first, length)) = line(bytes)? else { return Ok(None) };
        match first {
            b"HD" => Ok(Some((Reply::Stored, length))),
            b"EN" => Ok(Some((Reply::Missing, length))),
            _ => match first.strip_prefix(b"VA ") {
                None => Ok(Some((Reply::Refused(first), length))),
                Some(digits) => {
                    let value_bytes = decimal(digits)?;
                    let Some(rest) = bytes.get(length..length + value_bytes + 2) else { return Ok(None) };
                    match rest.strip_suffix(b"\r\n") {
                        Some(value) => Ok(Some((Reply::Value(value), length + value_bytes + 2))),
                        None => Err("a value is not followed by the end of a line".into()),
                    }
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_written_as_the_protocol_says() {
        let mut requests = Vec::new();
        Memcached::write_get(b"user1", &mut requests);
        Memcached::write_put(b"user2", b"0123456789ab", &mut requests);
        assert_eq!(requests, b"mg user1 v\r\nms user2 12\r\n0123456789ab\r\n");
    }

    #[test]
    fn replies_are_read_when_they_are_whole() {
        let replies: &[(&[u8], Reply)] = &[
            (b"VA 4\r\nab\r\n\r\n", Reply::Value(b"ab\r\n")),
            (b"VA 0\r\n\r\n", Reply::Value(b"")),
            (b"EN\r\n", Reply::Missing),
            (b"HD\r\n", Reply::Stored),
            (b"SERVER_ERROR out of memory\r\n", Reply::Refused(b"SERVER_ERROR out of memory")),
        ];
        for (bytes, reply) in replies {
            for part in 0..bytes.len() {
                assert_eq!(Memcached::reply(&bytes[..part]).unwrap(), None);
            }
            let longer = [bytes, b"EN\r\n".as_slice()].concat();
            let (got, length) = Memcached::reply(&longer).unwrap().unwrap();
            assert_eq!((&got, length), (reply, bytes.len()));
        }
    }

    #[test]
    fn garbage_is_an_error() {
        assert!(Memcached::reply(b"VA x\r\n").is_err());
        assert!(Memcached::reply(b"VA 99999999999999999999\r\n").is_err());
        assert!(Memcached::reply(b"VA 1\r\nabc").is_err());
        assert!(Memcached::reply(&[b'x'; 4096]).is_err());
    }
}
