use std::collections::HashMap;

use roce::{
    CompletionQueue, MemoryRegion, MemoryWindow, ProtectionDomain, QueuePair, SharedReceiveQueue,
};

use crate::failure::Failure;

#[derive(Default, Debug)]
pub(crate) struct Named {
    pub(crate) pds: HashMap<String, ProtectionDomain>,
    pub(crate) windows: HashMap<String, MemoryWindow>,
    pub(crate) mrs: HashMap<String, MemoryRegion>,
    pub(crate) cqs: HashMap<String, CompletionQueue>,
    pub(crate) srqs: HashMap<String, SharedReceiveQueue>,
    pub(crate) qps: HashMap<String, QueuePair>,
}

impl Named {
    pub(crate) fn count(&self) -> usize {
        let Self { pds, windows, mrs, cqs, srqs, qps } = self;
        pds.len() + windows.len() + mrs.len() + cqs.len() + srqs.len() + qps.len()
    }
}

pub(crate) fn find<'a, T>(map: &'a HashMap<String, T>, name: &str) -> Result<&'a T, Failure> {
    map.get(name).ok_or_else(|| unknown(name))
}

pub(crate) fn unknown(name: &str) -> Failure {
    Failure::malformed(format!("unknown object {name}"))
}
