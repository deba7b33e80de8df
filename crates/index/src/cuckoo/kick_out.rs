//! The search for a free row when rows of a key are taken (Mitchell §3.4, Algorithm 2).
//!
//! Two short chains are tried before a key's second and third row, because they cost readers fewer probes: the mean at
//! 60% full is 1.3 with them and 1.4 without. After that, breadth first over the places where the occupants could go
//! instead, so that the chain of moves is as short as can be: each move is a moment in which a reader's second pass may
//! fail. The whole chain is found before anything moves, and it is carried out from its end: each occupant is written to
//! its new row before its old one is overwritten, so every key is in one or two rows at any time, never in none.

use super::{State, Table, WAYS};
use crate::{Owner, counters::count};
use locus_fabric::Region;
use locus_runtime::mistakes::{Mistake, planted};

/// How many rows a search looks at, at most. Near the threshold of 3-way cuckoo hashing (91.8% full) chains get long; with
/// these limits tables fill to 89% on average before one is not found.
pub(crate) const NODES_MAX: usize = 2048;
/// The same for the smallest tables: more would come past the same rows again.
const NODES_MIN: usize = 128;
/// The longest chain.
const STEPS_MAX: usize = 16;

/// A row that a search has reached, by which way, and from which other.
#[derive(Clone, Copy)]
pub(crate) struct Node {
    row: u32,
    parent: u16,
    way: u8,
}

impl Node {
    const ROOT: u16 = u16::MAX;

    fn root(row: u32, way: usize) -> Self {
        Self { row, parent: Self::ROOT, way: way as u8 }
    }

    fn child(row: u32, way: usize, parent: usize) -> Self {
        Self { row, parent: parent as u16, way: way as u8 }
    }
}

/// A chain of rows, from the one that is free: the occupant of each goes to the row before it, and the last one becomes
/// free for the key.
pub(super) struct Chain {
    steps: [(u32, u8); STEPS_MAX],
    length: usize,
}

impl Chain {
    /// Looks for a chain that frees one of a key's rows.
    pub(super) fn find<R: Region>(owner: &mut Owner<R>, table: &Table, roots: [u32; WAYS]) -> Option<Self> {
        if is_empty(owner, table, roots[0]) {
            return Some(Self { steps: [(roots[0], 0); STEPS_MAX], length: 1 });
        }
        // The owner's scratch saves an allocation; it is taken out so that rows can be read meanwhile.
        let mut nodes = std::mem::take(&mut owner.scratch);
        nodes.clear();
        let found = short(owner, table, roots, &mut nodes) || breadth_first(owner, table, &mut nodes);
        let chain = found.then(|| Self::back_from_last(&nodes)).flatten();
        owner.scratch = nodes;
        chain
    }

    fn back_from_last(nodes: &[Node]) -> Option<Self> {
        let mut chain = Self { steps: [(0, 0); STEPS_MAX], length: 0 };
        let mut node = *nodes.last()?;
        loop {
            *chain.steps.get_mut(chain.length)? = (node.row, node.way);
            chain.length += 1;
            match node.parent {
                Node::ROOT => return Some(chain),
                parent => node = nodes[usize::from(parent)],
            }
        }
    }

    /// Moves the occupants, last one first. Gives the row that is free to be overwritten, and the way by which the key
    /// belongs there. That row still holds its old occupant, which is elsewhere too by now.
    pub(super) fn carry_out<R: Region>(self, owner: &mut Owner<R>, table: &Table) -> (u32, usize) {
        let steps = &self.steps[..self.length];
        for pair in steps.windows(2) {
            let [(to, way), (from, _)] = [pair[0], pair[1]];
            let occupant = owner.row(table, from);
            let version = owner.row(table, to).next_version();
            if planted(Mistake::KickOutClearsFirst) {
                let version = owner.row(table, from).next_version();
                owner.store_row(table, from, super::Row::empty(version));
            }
            owner.store_row(table, to, occupant.by_way(way.into(), version));
            count(&owner.counters.kick_outs);
        }
        let (row, way) = steps[self.length - 1];
        (row, way.into())
    }
}

fn is_empty<R: Region>(owner: &Owner<R>, table: &Table, row: u32) -> bool {
    owner.row(table, row).state() == State::Empty
}

/// The cheap places for a key whose first row is taken; the last node is the free one. If there is none, the nodes are
/// the key's three rows.
fn short<R: Region>(owner: &Owner<R>, table: &Table, roots: [u32; WAYS], nodes: &mut Vec<Node>) -> bool {
    nodes.push(Node::root(roots[0], 0));
    if home_again(owner, table, nodes) {
        return true;
    }
    nodes.push(Node::root(roots[1], 1));
    if is_empty(owner, table, roots[1]) {
        return true;
    }
    if let Some(place) = one_probe_more(owner, table, roots[0], 0) {
        nodes.push(place);
        return true;
    }
    if home_again(owner, table, nodes) {
        return true;
    }
    nodes.push(Node::root(roots[2], 2));
    is_empty(owner, table, roots[2])
}

/// The chain in which the occupant of the last node, if that is not its own first row, goes to its own, whose occupant
/// goes on for one more probe: together they cost no more than before.
fn home_again<R: Region>(owner: &Owner<R>, table: &Table, nodes: &mut Vec<Node>) -> bool {
    let from = nodes.len() - 1;
    let row = nodes[from].row;
    let occupant = owner.row(table, row);
    let [home, ..] = table.positions_of(row, occupant.way(), occupant.fingerprint());
    if home == row {
        return false;
    }
    nodes.push(Node::child(home, 0, from));
    if is_empty(owner, table, home) {
        return true;
    }
    if let Some(place) = one_probe_more(owner, table, home, from + 1) {
        nodes.push(place);
        return true;
    }
    nodes.pop();
    false
}

/// A free row to which the occupant of `row` can go for one more probe at most. Asked of a key's first row when its
/// second is taken too: both together then cost a probe less than with the key in its third.
fn one_probe_more<R: Region>(owner: &Owner<R>, table: &Table, row: u32, parent: usize) -> Option<Node> {
    let occupant = owner.row(table, row);
    let places = table.positions_of(row, occupant.way(), occupant.fingerprint());
    (0..WAYS.min(occupant.way() + 2))
        .find(|&way| is_empty(owner, table, places[way]))
        .map(|way| Node::child(places[way], way, parent))
}

/// Goes on from the nodes until one is free, which is then the last.
fn breadth_first<R: Region>(owner: &Owner<R>, table: &Table, nodes: &mut Vec<Node>) -> bool {
    let limit = (table.rows as usize / 2).clamp(NODES_MIN, NODES_MAX);
    let mut head = 0;
    while head < nodes.len() {
        let from = nodes[head];
        let occupant = owner.row(table, from.row);
        let places = table.positions_of(from.row, occupant.way(), occupant.fingerprint());
        for (way, row) in places.into_iter().enumerate() {
            if passes(nodes, head, row) {
                continue;
            }
            if nodes.len() == limit {
                return false;
            }
            nodes.push(Node::child(row, way, head));
            if is_empty(owner, table, row) {
                return true;
            }
        }
        head += 1;
    }
    false
}

/// Whether the chain that ends in `node` has this row already: an occupant cannot move in a circle.
fn passes(nodes: &[Node], mut node: usize, row: u32) -> bool {
    loop {
        if nodes[node].row == row {
            return true;
        }
        match nodes[node].parent {
            Node::ROOT => return false,
            parent => node = parent.into(),
        }
    }
}
