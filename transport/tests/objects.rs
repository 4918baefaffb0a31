//! Used objects cannot be destroyed: random steps against a model.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
};
use roce_transport::{
    adapter::{Adapter, AdapterConfig, Limits, ObjectError, PdId},
    addr::AddressVector,
    ids::{AhId, Qpn, SrqId, WindowId, XrcdId},
    mem::{Access, HeapMemory, MrAttr, Region, Reregister, WindowType},
    qp::{QpCaps, QpInit, QpType},
    work::{CompletionQueue, SrqAttr},
};

/// With `twice`, the second deregistration has no effect.
#[derive(Clone, Copy, Debug)]
enum Step {
    AllocPd,
    CreateCq,
    OpenXrcd,
    Register,
    AllocWindow,
    CreateAh,
    CreateSrq,
    CreateXrcSrq,
    CreateQp { shared: bool, same_cq: bool },
    CreateInitiator,
    CreateTarget,
    Reregister,
    Reset,
    DeallocPd,
    DestroyCq,
    CloseXrcd,
    Deregister { twice: bool },
    DeallocWindow,
    DestroyAh,
    DestroySrq,
    DestroyQp,
}

fn step() -> impl Strategy<Value = Step> {
    use Step as S;
    let creations = &[S::AllocPd, S::CreateCq, S::OpenXrcd, S::Register, S::AllocWindow];
    let others = &[S::CreateAh, S::CreateSrq, S::CreateXrcSrq, S::CreateInitiator, S::CreateTarget];
    let changes = &[S::Reregister, S::Reset, S::DeallocPd, S::DestroyCq, S::CloseXrcd];
    let ends = &[S::DeallocWindow, S::DestroyAh, S::DestroySrq, S::DestroyQp];
    prop_oneof![
        19 => select([&creations[..], others, changes, ends].concat()),
        1 => (any::<bool>(), any::<bool>())
            .prop_map(|(shared, same_cq)| S::CreateQp { shared, same_cq }),
        1 => any::<bool>().prop_map(|twice| S::Deregister { twice }),
    ]
}

struct Srq {
    id: SrqId,
    pd: PdId,
    xrc: Option<(XrcdId, Arc<CompletionQueue>)>,
}

struct Qp {
    qpn: Qpn,
    pd: Option<PdId>,
    cqs: Vec<Arc<CompletionQueue>>,
    srq: Option<SrqId>,
    xrcd: Option<XrcdId>,
}

struct World {
    adapter: Adapter,
    pds: Vec<PdId>,
    cqs: Vec<Arc<CompletionQueue>>,
    xrcds: Vec<XrcdId>,
    regions: Vec<(Arc<Region>, PdId)>,
    windows: Vec<(WindowId, PdId)>,
    ahs: Vec<(AhId, PdId)>,
    srqs: Vec<Srq>,
    qps: Vec<Qp>,
}

const SRQ: SrqAttr = SrqAttr { max_wr: 1, max_sge: 1 };

fn attr() -> MrAttr {
    MrAttr { memory: Arc::new(HeapMemory::new(16)), address: 0, access: Access::empty() }
}

fn new_adapter(limits: Limits) -> Adapter {
    let mut adapter = Adapter::new(AdapterConfig { limits, ..AdapterConfig::new([1; 32]) });
    adapter.set_gids(vec![std::net::IpAddr::from([10, 0, 0, 1]).into()]);
    adapter
}

impl World {
    fn new() -> Self {
        Self {
            adapter: new_adapter(Limits::default()),
            pds: vec![],
            cqs: vec![],
            xrcds: vec![],
            regions: vec![],
            windows: vec![],
            ahs: vec![],
            srqs: vec![],
            qps: vec![],
        }
    }

    // In use, by a search of everything.

    fn pd_is_used(&self, pd: PdId) -> bool {
        self.regions.iter().any(|&(_, of)| of == pd)
            || self.windows.iter().any(|&(_, of)| of == pd)
            || self.ahs.iter().any(|&(_, of)| of == pd)
            || self.srqs.iter().any(|srq| srq.pd == pd)
            || self.qps.iter().any(|qp| qp.pd == Some(pd))
    }

    fn cq_is_used(&self, cq: &Arc<CompletionQueue>) -> bool {
        let is = |other: &Arc<CompletionQueue>| Arc::ptr_eq(other, cq);
        self.qps.iter().any(|qp| qp.cqs.iter().any(is))
            || self.srqs.iter().any(|srq| srq.xrc.as_ref().is_some_and(|(_, cq)| is(cq)))
    }

    fn xrcd_is_used(&self, xrcd: XrcdId) -> bool {
        self.qps.iter().any(|qp| qp.xrcd == Some(xrcd))
            || self.srqs.iter().any(|srq| srq.xrc.as_ref().is_some_and(|(of, _)| *of == xrcd))
    }

    fn create_qp(
        &mut self,
        qp_type: QpType,
        pd: PdId,
        cqs: [&Arc<CompletionQueue>; 2],
        srq: Option<SrqId>,
    ) {
        let [send_cq, recv_cq] = cqs.map(Arc::clone);
        let init = QpInit {
            qp_type,
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            srq,
            caps: QpCaps::default(),
            sq_sig_all: false,
            pd,
            quirks: Default::default(),
        };
        let qpn = self.adapter.create_qp(init).unwrap();
        let mut cqs = vec![send_cq];
        if qp_type != QpType::XrcInitiator {
            cqs.push(recv_cq);
        }
        self.qps.push(Qp { qpn, pd: Some(pd), cqs, srq, xrcd: None });
    }

    /// Takes a step if its objects exist.
    fn step(&mut self, step: Step, [one, two, three]: [Index; 3]) -> Option<()> {
        let pd = (!self.pds.is_empty()).then(|| self.pds[one.index(self.pds.len())]);
        let cq = |of: Index| (!self.cqs.is_empty()).then(|| of.get(&self.cqs).clone());
        let xrcd = (!self.xrcds.is_empty()).then(|| *three.get(&self.xrcds));
        let at = |length: usize| (length > 0).then(|| two.index(length));
        match step {
            Step::AllocPd => self.pds.push(self.adapter.alloc_pd().unwrap()),
            Step::CreateCq => self.cqs.push(self.adapter.create_cq(1).unwrap()),
            Step::OpenXrcd => self.xrcds.push(self.adapter.open_xrcd().unwrap()),
            Step::Register => {
                self.regions.push((self.adapter.register(pd?, attr()).unwrap(), pd?));
            }
            Step::AllocWindow => {
                let key = self.adapter.alloc_window(pd?, WindowType::Type2B).unwrap();
                self.windows.push((WindowId::of(key), pd?));
            }
            Step::CreateAh => {
                let to = std::net::IpAddr::from([10, 0, 0, 2]);
                let av = AddressVector::new(to.into(), 0);
                self.ahs.push((self.adapter.create_ah(pd?, &av).unwrap(), pd?));
            }
            Step::CreateSrq => {
                let id = self.adapter.create_srq(pd?, SRQ).unwrap();
                self.srqs.push(Srq { id, pd: pd?, xrc: None });
            }
            Step::CreateXrcSrq => {
                let (xrcd, cq) = (xrcd?, cq(two)?);
                let id = self.adapter.create_xrc_srq(pd?, SRQ, xrcd, cq.clone()).unwrap();
                self.srqs.push(Srq { id, pd: pd?, xrc: Some((xrcd, cq)) });
            }
            Step::CreateQp { shared, same_cq } => {
                let cqs = [cq(two)?, if same_cq { cq(two)? } else { cq(three)? }];
                let plain: Vec<_> = self.srqs.iter().filter(|srq| srq.xrc.is_none()).collect();
                let srq = (shared && !plain.is_empty()).then(|| three.get(&plain).id);
                self.create_qp(QpType::Rc, pd?, cqs.each_ref(), srq);
            }
            Step::CreateInitiator => {
                let cqs = [cq(two)?, cq(three)?];
                self.create_qp(QpType::XrcInitiator, pd?, cqs.each_ref(), None);
            }
            Step::CreateTarget => {
                let qpn = self.adapter.create_xrc_target(xrcd?).unwrap();
                self.qps.push(Qp { qpn, pd: None, cqs: vec![], srq: None, xrcd });
            }
            Step::Reregister => {
                let index = at(self.regions.len())?;
                let change = Reregister { pd, ..Reregister::default() };
                let changed = self.adapter.reregister(&self.regions[index].0, change).unwrap();
                self.regions[index] = (changed, pd?);
            }
            Step::Reset => self.adapter.to_reset(self.qps[at(self.qps.len())?].qpn).unwrap(),
            Step::DeallocPd => {
                let used = self.pd_is_used(pd?);
                let expected = if used { Err(ObjectError::InUse) } else { Ok(()) };
                assert_eq!(self.adapter.dealloc_pd(pd?), expected);
                self.pds.retain(|&other| used || Some(other) != pd);
            }
            Step::DestroyCq => {
                let cq = cq(two)?;
                let used = self.cq_is_used(&cq);
                let expected = if used { Err(ObjectError::InUse) } else { Ok(()) };
                assert_eq!(self.adapter.destroy_cq(cq.id()), expected);
                self.cqs.retain(|other| used || !Arc::ptr_eq(other, &cq));
            }
            Step::CloseXrcd => {
                let xrcd = xrcd?;
                let used = self.xrcd_is_used(xrcd);
                let expected = if used { Err(ObjectError::InUse) } else { Ok(()) };
                assert_eq!(self.adapter.close_xrcd(xrcd), expected);
                self.xrcds.retain(|&other| used || other != xrcd);
            }
            Step::Deregister { twice } => {
                let (region, _) = self.regions.swap_remove(at(self.regions.len())?);
                self.adapter.deregister(&region).unwrap();
                if twice {
                    self.adapter.deregister(&region).unwrap();
                    self.adapter.revoke(&region);
                }
            }
            Step::DeallocWindow => {
                let (id, _) = self.windows.swap_remove(at(self.windows.len())?);
                self.adapter.dealloc_window(id).unwrap();
                assert_eq!(self.adapter.dealloc_window(id), Err(ObjectError::Unknown));
            }
            Step::DestroyAh => {
                let (id, _) = self.ahs.swap_remove(at(self.ahs.len())?);
                self.adapter.destroy_ah(id).unwrap();
                assert_eq!(self.adapter.destroy_ah(id), Err(ObjectError::Unknown));
            }
            Step::DestroySrq => {
                let index = at(self.srqs.len())?;
                let id = self.srqs[index].id;
                let used = self.qps.iter().any(|qp| qp.srq == Some(id));
                let expected = if used { Err(ObjectError::InUse) } else { Ok(()) };
                assert_eq!(self.adapter.destroy_srq(id), expected);
                if !used {
                    self.srqs.swap_remove(index);
                    assert_eq!(self.adapter.destroy_srq(id), Err(ObjectError::Unknown));
                }
            }
            Step::DestroyQp => {
                let Qp { qpn, .. } = self.qps.swap_remove(at(self.qps.len())?);
                self.adapter.destroy_qp(qpn).unwrap();
                assert_eq!(self.adapter.destroy_qp(qpn), Err(ObjectError::Unknown));
            }
        }
        Some(())
    }

    fn tear_down(mut self) {
        for Qp { qpn, .. } in self.qps {
            self.adapter.destroy_qp(qpn).unwrap();
        }
        for Srq { id, .. } in self.srqs {
            self.adapter.destroy_srq(id).unwrap();
        }
        for (region, _) in self.regions {
            self.adapter.revoke(&region);
        }
        for (id, _) in self.windows {
            self.adapter.dealloc_window(id).unwrap();
        }
        for (id, _) in self.ahs {
            self.adapter.destroy_ah(id).unwrap();
        }
        for pd in self.pds {
            self.adapter.dealloc_pd(pd).unwrap();
            assert_eq!(self.adapter.dealloc_pd(pd), Err(ObjectError::Unknown));
        }
        for cq in self.cqs {
            self.adapter.destroy_cq(cq.id()).unwrap();
            assert_eq!(self.adapter.destroy_cq(cq.id()), Err(ObjectError::Unknown));
        }
        for xrcd in self.xrcds {
            self.adapter.close_xrcd(xrcd).unwrap();
            assert_eq!(self.adapter.close_xrcd(xrcd), Err(ObjectError::Unknown));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn what_is_used_is_not_destroyed_and_the_rest_is(
        steps in vec((step(), any::<[Index; 3]>()), 0..200),
    ) {
        let mut world = World::new();
        for (step, choice) in steps {
            world.step(step, choice);
        }
        world.tear_down();
    }
}

/// A search of all objects would take minutes. The limit of 1 s is a hundred times the need.
#[test]
fn destruction_does_not_depend_on_the_number_of_objects() {
    const ROUNDS: usize = 5000;
    let mut adapter = new_adapter(Limits {
        max_mr: 200_000,
        max_qp: 20_000,
        max_srq: 20_000,
        max_cq: 20_000,
        ..Limits::default()
    });
    let pd = adapter.alloc_pd().unwrap();
    let (xrcd, cq) = (adapter.open_xrcd().unwrap(), adapter.create_cq(1).unwrap());
    let memory = Arc::new(HeapMemory::new(1));
    let regions: Vec<_> = (0..100_000)
        .map(|_| {
            let attr = MrAttr { memory: memory.clone(), address: 0, access: Access::empty() };
            adapter.register(pd, attr).unwrap()
        })
        .collect();
    for _ in 0..10_000 {
        adapter.create_xrc_target(xrcd).unwrap();
        adapter.create_srq(pd, SRQ).unwrap();
    }
    let mut longest = Vec::new();
    let mut timed = |what, mut round: Box<dyn FnMut(&mut Adapter)>, adapter: &mut Adapter| {
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| round(adapter));
        longest.push((what, start.elapsed()));
    };
    timed(
        "protection domains",
        Box::new(|adapter| {
            let pd = adapter.alloc_pd().unwrap();
            adapter.dealloc_pd(pd).unwrap();
        }),
        &mut adapter,
    );
    timed(
        "completion queues",
        Box::new(|adapter| {
            let id = adapter.create_cq(1).unwrap().id();
            adapter.destroy_cq(id).unwrap();
        }),
        &mut adapter,
    );
    timed(
        "shared receive queues",
        Box::new(move |adapter| {
            let id = adapter.create_srq(pd, SRQ).unwrap();
            adapter.destroy_srq(id).unwrap();
        }),
        &mut adapter,
    );
    timed(
        "XRC SRQs",
        Box::new(move |adapter| {
            let id = adapter.create_xrc_srq(pd, SRQ, xrcd, cq.clone()).unwrap();
            adapter.destroy_srq(id).unwrap();
        }),
        &mut adapter,
    );
    timed(
        "XRC domains",
        Box::new(|adapter| {
            let xrcd = adapter.open_xrcd().unwrap();
            adapter.close_xrcd(xrcd).unwrap();
        }),
        &mut adapter,
    );
    assert!(longest.iter().all(|&(_, time)| time < Duration::from_secs(1)), "{longest:?}");
    drop(regions);
}
