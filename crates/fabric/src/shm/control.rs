//! The control area: what this process tells all its peers by plain memory that they can load and cannot store to.
//!
//! One sealed memfd per process holds the life word (line 0, see [`super::life`]), one line per completion queue for
//! its sleep flag (see [`super::sleep`]), and tokens. A token is a word that stands for something that can be taken
//! back, a region or a link: peers are told its value, and whatever it stands for is theirs to use while the word has
//! that value. Values never repeat, so a token's place is used again.

use super::{
    mapping::{self, Mapping, Rights},
    word::Word,
};
use crate::FabricError;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{
    Arc, Mutex, OnceLock,
    atomic::{AtomicU64, Ordering},
};

/// The length of the area, the same in every process that speaks this version, in bytes.
pub(crate) const CONTROL_BYTES: usize = 512 << 10;
/// Words per cache line.
const LINE_WORDS: usize = 8;
/// Where the tokens start; the lines between the life word and them are sleep flags.
const TOKENS_START: usize = (64 << 10) / 8;
const TOKENS_END: usize = CONTROL_BYTES / 8;
/// How many completion queues a process can have.
pub(crate) const SLEEPERS_MAX: usize = TOKENS_START / LINE_WORDS - 1;

/// The control area of this process.
#[derive(Debug)]
pub(crate) struct Control {
    file: OwnedFd,
    mapping: Mapping,
    free: Mutex<Free>,
    process: u32,
}

/// Places that are free.
#[derive(Debug)]
struct Free {
    sleepers: Vec<u16>,
    tokens: Vec<u32>,
    next_token: usize,
    next_value: u64,
}

impl Control {
    /// The area of this process, made and brought to life when first asked for. It stays until the process ends.
    pub(crate) fn of_process() -> Result<&'static Arc<Self>, FabricError> {
        static CONTROL: OnceLock<Result<Arc<Control>, (&'static str, i32)>> = OnceLock::new();
        let made = CONTROL.get_or_init(|| {
            Self::create().map_err(|error| match error {
                FabricError::System { what, source } => (what, source.raw_os_error().unwrap_or(0)),
                FabricError::OutOfMemory { what, source, .. } => (what, source.raw_os_error().unwrap_or(0)),
                _ => ("making the control area", 0),
            })
        });
        match made {
            Ok(control) if control.process == std::process::id() => Ok(control),
            Ok(_) => Err(FabricError::State(
                "shm was opened before this process was forked: open it after the fork",
            )),
            Err((what, code)) => {
                Err(FabricError::System { what, source: std::io::Error::from_raw_os_error(*code) })
            }
        }
    }

    fn create() -> Result<Arc<Self>, FabricError> {
        let file = mapping::create_file(CONTROL_BYTES, false, "the control area")?;
        let mapping = Mapping::of_file(file.as_fd(), CONTROL_BYTES, Rights::Store)?;
        mapping.populate();
        mapping::seal(file.as_fd(), true)?;
        let free = Free {
            sleepers: (0..SLEEPERS_MAX as u16).rev().collect(),
            tokens: Vec::new(),
            next_token: TOKENS_START,
            next_value: 1,
        };
        let control = Arc::new(Self { file, mapping, free: Mutex::new(free), process: std::process::id() });
        super::life::start(&control)?;
        Ok(control)
    }

    /// The descriptor, for peers.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The life word, in the lower half of the area's first word.
    pub(crate) fn life(&self) -> &AtomicU64 {
        &self.mapping.words()[0]
    }

    /// Takes a line for the sleep flag of a completion queue.
    pub(crate) fn take_sleeper(self: &Arc<Self>) -> Result<Sleeper, FabricError> {
        let line = self.lock().sleepers.pop();
        let line = line.ok_or(FabricError::Limit {
            what: "the number of completion queues of a process",
            asked: SLEEPERS_MAX + 1,
            limit: SLEEPERS_MAX,
        })?;
        Ok(Sleeper { control: self.clone(), line })
    }

    /// Takes a token.
    pub(crate) fn take_token(self: &Arc<Self>) -> Result<Token, FabricError> {
        let mut free = self.lock();
        let index = match free.tokens.pop() {
            Some(index) => index,
            None if free.next_token < TOKENS_END => {
                free.next_token += 1;
                (free.next_token - 1) as u32
            }
            None => {
                let limit = TOKENS_END - TOKENS_START;
                let what = "the number of regions and links of a process";
                return Err(FabricError::Limit { what, asked: limit + 1, limit });
            }
        };
        let value = free.next_value;
        free.next_value += 1;
        self.mapping.words()[index as usize].store(value, Ordering::Release);
        Ok(Token { control: self.clone(), index, value })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A line for one completion queue's sleep flag; given back when dropped.
#[derive(Debug)]
pub(crate) struct Sleeper {
    control: Arc<Control>,
    line: u16,
}

impl Sleeper {
    /// Its number, for peers.
    pub(crate) fn line(&self) -> u16 {
        self.line
    }

    /// The flag.
    #[inline]
    pub(crate) fn flag(&self) -> &AtomicU64 {
        &self.control.mapping.words()[sleeper_word(self.line)]
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.control.lock().sleepers.push(self.line);
    }
}

fn sleeper_word(line: u16) -> usize {
    (usize::from(line) + 1) * LINE_WORDS
}

/// A word that stands for something that can be taken back; taken back when dropped.
#[derive(Debug)]
pub(crate) struct Token {
    control: Arc<Control>,
    index: u32,
    value: u64,
}

impl Token {
    /// Where peers find the word, and what value it has while it stands.
    pub(crate) fn name(&self) -> (u32, u64) {
        (self.index, self.value)
    }

    /// Takes back what the token stands for.
    pub(crate) fn revoke(&self) {
        revoke(self.word());
    }

    /// Whether it still stands.
    pub(crate) fn stands(&self) -> bool {
        self.word().load(Ordering::Acquire) == self.value
    }

    fn word(&self) -> &AtomicU64 {
        &self.control.mapping.words()[self.index as usize]
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.revoke();
        self.control.lock().tokens.push(self.index);
    }
}

/// The owner's half of taking something back. Whatever the owner stores afterwards, a peer that sees it also sees this:
/// the peer loads the data, passes an acquire fence and then loads the word, and the release fence here comes between the
/// word and the data.
pub(crate) fn revoke<W: Word>(word: &W) {
    word.store(0, Ordering::Release);
    // SeqCst includes release, and lets the owner's later loads come after as well.
    W::fence(Ordering::SeqCst);
}

/// The peer's half: whether all that was loaded before this call was loaded while the word still had its value.
#[inline(always)]
pub(crate) fn stands<W: Word>(word: &W, value: u64) -> bool {
    W::fence(Ordering::Acquire);
    word.load(Ordering::Relaxed) == value
}

/// The control area of a peer, which we can only load from.
#[derive(Debug)]
pub(crate) struct PeerControl {
    mapping: Mapping,
}

impl PeerControl {
    /// Takes a peer's area; an error says what is wrong with it.
    pub(crate) fn import(file: BorrowedFd<'_>) -> Result<Self, &'static str> {
        let mapping = mapping::import(file, CONTROL_BYTES, Rights::Load)?;
        mapping.populate();
        Ok(Self { mapping })
    }

    /// The life word.
    #[inline]
    pub(crate) fn life(&self) -> &AtomicU64 {
        &self.mapping.words()[0]
    }

    /// The sleep flag of one of the peer's completion queues.
    pub(crate) fn sleeper(&self, line: u16) -> Option<usize> {
        (usize::from(line) < SLEEPERS_MAX).then(|| sleeper_word(line))
    }

    /// A word of the area whose index came from [`PeerControl::sleeper`] or [`PeerControl::token`].
    #[inline]
    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        &self.mapping.words()[index]
    }

    /// The place of a token.
    pub(crate) fn token(&self, index: u32) -> Option<usize> {
        let index = index as usize;
        (TOKENS_START..TOKENS_END).contains(&index).then_some(index)
    }
}
