//! Return addresses, resolved when shown.

use std::{
    collections::BTreeMap,
    ffi::c_void,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use roce_provider::report::Caller;

use super::{
    mapped::{OWN, module},
    python::{self, Line},
};
use crate::sync::Mutex;

/// Callers kept.
const DEPTH: usize = 12;
/// Callers of a numbered place: few, since each post costs their search.
const NEAREST: usize = 4;
/// Places that have numbers.
const NUMBERED: usize = 4096;

/// Innermost lock, taken under an engine's.
static PLACES: Mutex<BTreeMap<Stack, Caller>> = Mutex::new(BTreeMap::new());

/// Callers, innermost first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Stack {
    addresses: Arc<[usize]>,
    /// Of a Python program.
    lines: Arc<[Line]>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    /// The function, or file and offset.
    pub(super) function: String,
    /// Source and line, or the file.
    pub(super) place: String,
    pub(super) source: Option<(PathBuf, u32)>,
    /// Mapped file.
    pub(super) object: String,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.function, self.place)
    }
}

impl Stack {
    pub(crate) fn here() -> Self {
        Self::nearest(DEPTH)
    }

    fn nearest(depth: usize) -> Self {
        let mut addresses = Vec::with_capacity(depth);
        backtrace::trace(|frame| {
            let address = frame.ip() as usize;
            if address != 0 && !OWN.contains(&address) {
                addresses.push(address);
            }
            addresses.len() < depth
        });
        Self { addresses: addresses.into(), lines: python::lines() }
    }

    /// The same number for the same callers; `None` beyond [`NUMBERED`].
    pub(super) fn number_here() -> Option<Caller> {
        let (this, mut places) = (Self::nearest(NEAREST), PLACES.lock());
        let next = places.len();
        if let Some(known) = places.get(&this) {
            return Some(*known);
        }
        (next < NUMBERED).then(|| *places.entry(this).or_insert(next as Caller))
    }

    pub(super) fn of(caller: Caller) -> Option<Self> {
        let places = PLACES.lock();
        places.iter().find(|(_, number)| **number == caller).map(|(stack, _)| stack.clone())
    }

    pub(crate) fn none() -> Self {
        Self { addresses: Arc::default(), lines: Arc::default() }
    }

    pub(super) fn place(&self) -> Self {
        let addresses = self.addresses.iter().copied().take(2).collect();
        Self { addresses, lines: self.lines.iter().take(1).cloned().collect() }
    }

    /// Resolves callers down to `main` or Python's lines.
    pub(super) fn frames(&self) -> Vec<Frame> {
        let mut frames = Vec::new();
        for &address in &*self.addresses {
            let (before, (object, offset)) = (frames.len(), module(address));
            if !self.lines.is_empty() && python::is_interpreter(&object) {
                break;
            }
            // a return address follows the call
            backtrace::resolve((address - 1) as *mut c_void, |symbol| {
                let Some(name) = symbol.name() else { return };
                let source = symbol.filename().map(Path::to_path_buf).zip(symbol.lineno());
                let place = match &source {
                    Some((file, line)) => format!("{}:{line}", short(file)),
                    None => object.clone(),
                };
                let (function, object) = (format!("{name:#}"), object.clone());
                frames.push(Frame { function, place, source, object });
            });
            if frames.len() == before {
                let (function, place) = (format!("{object}+{offset:#x}"), object.clone());
                frames.push(Frame { function, place, source: None, object });
            }
            let last = frames.last().map_or("", |frame| &*frame.function);
            if last.starts_with("__libc_start") {
                frames.pop();
                break; // above `main`
            }
            if last == "main" {
                break;
            }
        }
        frames.extend(self.lines.iter().map(|line| {
            let file = PathBuf::from(&*line.file);
            let place = format!("{}:{}", short(&file), line.line);
            let (function, object) = (line.function.to_string(), "Python".to_owned());
            Frame { function, place, source: Some((file, line.line)), object }
        }));
        frames
    }
}

fn short(path: &Path) -> String {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    parts[parts.len().saturating_sub(2)..].join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn a_function_that_asks() -> Stack {
        std::hint::black_box(Stack::here())
    }

    #[test]
    fn callers_have_names() {
        let stack = a_function_that_asks();
        let frames = stack.frames();
        let found = frames.iter().any(|frame| frame.function.contains("a_function_that_asks"));
        assert!(found, "{frames:?}");
        assert_eq!(stack.place(), stack.place());
        assert!(Stack::none().frames().is_empty());
    }

    #[test]
    fn names_of_cpp_are_those_of_the_source() {
        let name = backtrace::SymbolName::new(b"_ZN4rdma7Channel4sendEPKvm");
        assert_eq!(format!("{name:#}"), "rdma::Channel::send(void const*, unsigned long)");
    }

    #[test]
    fn an_address_that_belongs_to_nothing_is_shown_as_it_is() {
        let frames = Stack { addresses: [0x10].into(), lines: Arc::default() }.frames();
        assert_eq!(frames[0].to_string(), "?+0x10 (?)");
    }
}
