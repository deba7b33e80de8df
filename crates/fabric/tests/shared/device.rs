//! What tests with an RDMA device of their own do to it, and what they count. Tests of other crates use it, too.

use std::{
    collections::BTreeMap,
    process::{Child, Command},
};

/// The network interface under an RDMA device, by the IPv4 address of the device.
pub struct Interface(String);

impl Interface {
    pub fn of(address: &str) -> Self {
        let shown = Command::new("ip").args(["-4", "-o", "address", "show", "to", address]).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        Self(shown.split_whitespace().nth(1).expect("an interface with the address").to_owned())
    }

    /// Sets it `up` or `down`.
    pub fn set(&self, state: &str) {
        let done = Command::new("ip").args(["link", "set", &self.0, state]).status().unwrap();
        assert!(done.success());
    }
}

/// SoftRoCE's device, while it is taken away. The command that takes it away ends when the last process has let go of it.
pub struct Removal(Child);

impl Removal {
    /// Begins to take the device away.
    pub fn begin() -> Self {
        Self(Command::new("rdma").args(["link", "delete", "rxe0"]).spawn().expect("rdma of iproute2"))
    }

    /// Whether all processes have let go of it.
    pub fn is_done(&mut self) -> bool {
        self.0.try_wait().unwrap().inspect(|ended| assert!(ended.success(), "{ended}")).is_some()
    }

    /// Puts the device back, on its network interface.
    pub fn undo(mut self, interface: &Interface) {
        assert!(self.is_done());
        let add = ["link", "add", "rxe0", "type", "rxe", "netdev", &interface.0];
        assert!(Command::new("rdma").args(add).status().unwrap().success());
    }
}

/// Whether the port is active.
pub fn is_active() -> bool {
    let state = std::fs::read_to_string("/sys/class/infiniband/rxe0/ports/1/state");
    state.is_ok_and(|state| state.contains("ACTIVE"))
}

/// The device's objects, by kind.
pub const OBJECTS: [&str; 4] = ["pd", "cq", "qp", "mr"];

/// What the process and the device hold: descriptors, threads, and the device's objects of each kind.
pub fn held() -> BTreeMap<String, usize> {
    let count = |folder: &str| std::fs::read_dir(folder).unwrap().count();
    let mut held = BTreeMap::from([
        ("descriptors".to_owned(), count("/proc/self/fd")),
        ("threads".to_owned(), count("/proc/self/task")),
    ]);
    let shown = Command::new("rdma").args(["resource", "show"]).output().expect("rdma of iproute2");
    let shown = String::from_utf8(shown.stdout).unwrap();
    let words: Vec<_> = shown.split_whitespace().collect();
    for pair in words.windows(2) {
        let known = pair[0] == "ctx" || OBJECTS.contains(&pair[0]);
        if let (true, Ok(number)) = (known, pair[1].parse()) {
            held.insert(pair[0].to_owned(), number);
        }
    }
    assert_eq!(held.len(), 7, "{shown}");
    held
}
