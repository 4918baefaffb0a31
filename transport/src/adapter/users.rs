//! Reference counts. An XRC target counts only for its XRC domain: its other objects are the
//! current XRC SRQ's.

use hashbrown::HashMap;

use crate::{
    hash::IdHasher,
    ids::{CqId, PdId, SrqId, XrcdId},
    qp::{Common, QpType},
    work::SharedQueue,
};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Used {
    Pd(PdId),
    Cq(CqId),
    Srq(SrqId),
    Xrcd(XrcdId),
}

#[derive(Default, Debug)]
pub(super) struct Users(HashMap<Used, usize, IdHasher>);

impl Users {
    pub(super) fn add(&mut self, used: impl IntoIterator<Item = Used>) {
        for used in used {
            *self.0.entry(used).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, used: impl IntoIterator<Item = Used>) {
        for used in used {
            let left = self.0.get_mut(&used).map(|count| {
                *count -= 1;
                *count
            });
            debug_assert!(left.is_some(), "{used:?} has no users");
            if left == Some(0) {
                self.0.remove(&used);
            }
        }
    }

    pub(super) fn any(&self, used: Used) -> bool {
        self.0.contains_key(&used)
    }
}

pub(super) fn of_qp(common: &Common) -> impl Iterator<Item = Used> + use<> {
    let is_target = common.qp_type == QpType::XrcTarget;
    let [send_cq, recv_cq] = [&common.completions.send_cq, &common.receiving.cq]
        .map(|cq| cq.as_ref().filter(|_| !is_target).map(|cq| Used::Cq(cq.id())));
    let pd = (!is_target).then_some(Used::Pd(common.receiving.pd));
    let srq = common.receiving.srq.filter(|_| !is_target).map(Used::Srq);
    [pd, send_cq, recv_cq, srq, common.xrcd.map(Used::Xrcd)].into_iter().flatten()
}

pub(super) fn of_srq(srq: &SharedQueue) -> impl Iterator<Item = Used> + use<> {
    let xrc = srq.xrc.as_ref();
    let cq = xrc.map(|xrc| Used::Cq(xrc.cq.id()));
    let xrcd = xrc.map(|xrc| Used::Xrcd(xrc.xrcd));
    [Some(Used::Pd(srq.pd)), cq, xrcd].into_iter().flatten()
}
