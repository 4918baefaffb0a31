use pnet_datalink::MacAddr;
use roce_transport::ids::Qpn;

use super::{
    attr::{FlowAttr, FlowKind, FlowSpec},
    fields::Fields,
};

/// Identifies a flow of a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FlowId(u64);

#[derive(Debug)]
struct Entry {
    id: FlowId,
    qpn: Qpn,
    attr: FlowAttr,
}

/// Receivers of a frame: each queue pair once, with its first flow's tag.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Copies {
    /// Queue pairs and tags.
    pub to: Vec<(Qpn, u32)>,
    /// True: a flow drops the frame.
    pub dropped: bool,
}

impl Copies {
    fn add(&mut self, entry: &Entry) {
        if self.to.iter().all(|(qpn, _)| *qpn != entry.qpn) {
            self.to.push((entry.qpn, entry.attr.tag()));
        }
    }
}

/// Flows of a device.
#[derive(Debug)]
pub struct FlowTable {
    own: MacAddr,
    next: u64,
    /// By priority, then age.
    entries: Vec<Entry>,
}

impl FlowTable {
    /// An empty table of device `own`.
    pub const fn new(own: MacAddr) -> Self {
        Self { own, next: 0, entries: Vec::new() }
    }

    /// True without flows.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of flows.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a [checked](FlowAttr::check) flow.
    pub fn add(&mut self, qpn: Qpn, attr: FlowAttr) -> FlowId {
        let id = FlowId(self.next);
        self.next += 1;
        let at = self.entries.partition_point(|entry| entry.attr.priority <= attr.priority);
        self.entries.insert(at, Entry { id, qpn, attr });
        id
    }

    /// Removes a flow.
    pub fn remove(&mut self, id: FlowId) {
        self.entries.retain(|entry| entry.id != id);
    }

    /// Fills `copies` with a frame's receivers.
    ///
    /// If the transport takes the frame (`is_taken`), only sniffers get it. The sending queue pair
    /// of this device, `from`, gets no copy, nor do sniffers.
    pub fn steer(&self, frame: &[u8], is_taken: bool, from: Option<Qpn>, copies: &mut Copies) {
        copies.to.clear();
        copies.dropped = false;
        let Some(fields) = Fields::of(frame) else { return };
        let of = |kind: FlowKind| {
            self.entries
                .iter()
                .filter(move |entry| entry.attr.kind == kind && from != Some(entry.qpn))
        };
        if from.is_none() {
            of(FlowKind::Sniffer).for_each(|entry| copies.add(entry));
        }
        if is_taken {
            return;
        }
        let mut taken: Option<&Entry> = None;
        for entry in of(FlowKind::Normal) {
            let goes_on = taken.is_none_or(|first| first.attr.is_like(&entry.attr));
            if !goes_on || !entry.attr.matches(&fields, self.own, from.is_none()) {
                continue;
            }
            if entry.attr.specs.contains(&FlowSpec::Drop) {
                copies.dropped = true;
                return;
            }
            copies.add(entry);
            if !entry.attr.dont_trap {
                taken = Some(taken.unwrap_or(entry));
            }
        }
        if taken.is_some() {
            return;
        }
        let is_groups = fields.is_to_group() && of(FlowKind::McDefault).next().is_some();
        let default = if is_groups { FlowKind::McDefault } else { FlowKind::AllDefault };
        of(default).for_each(|entry| copies.add(entry));
    }
}
