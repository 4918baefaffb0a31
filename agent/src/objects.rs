use std::time::{Duration, Instant};

use roce::{
    BadWorkRequest, Context, Init, MemoryRegion, PeerAttr, ProtectionDomain, Psn, QKey, QpInitAttr,
    QpType, Qpn, Quirks, RequesterAttr, ResponderAttr, Rtr, Rts, SrqAttr, WindowType,
};
use serde_json::{Value, json};

use crate::{
    bound::{Count, MEMORY, Name, OBJECTS, Timeout, Waiting},
    command::{Command, CreateQp, Peer, Receive, Request, Transition},
    failure::Failure,
    named::{Named, find, unknown},
    pattern::pattern,
    translate,
};

pub(crate) struct Objects {
    pub(crate) context: Context,
    quirks: Quirks,
    named: Named,
}

type Response = Result<Value, Failure>;

impl Objects {
    pub(crate) fn new(context: Context, quirks: Quirks) -> Self {
        Self { context, quirks, named: Named::default() }
    }

    pub(crate) fn execute(&mut self, command: Command, waiting: &Waiting<'_>) -> Response {
        match command {
            Command::Hello {} => Ok(self.hello()),
            Command::Pd { name } => {
                let name = self.free_name(name)?;
                self.named.pds.insert(name, self.context.alloc_pd()?);
                Ok(json!({}))
            }
            Command::Mr { name, pd, length, access } => {
                self.create_mr(name, &pd, length.get(), &access)
            }
            Command::Window { name, pd, window_type } => {
                let window_type =
                    if window_type == 1 { WindowType::Type1 } else { WindowType::Type2B };
                let name = self.free_name(name)?;
                self.named.windows.insert(name, self.pd(&pd)?.alloc_window(window_type)?);
                Ok(json!({}))
            }
            Command::Cq { name, size } => {
                let name = self.free_name(name)?;
                self.named.cqs.insert(name, self.context.create_cq(size.get(), None)?);
                Ok(json!({}))
            }
            Command::Srq { name, pd, max_wr, max_sge } => {
                let srq = self.pd(&pd)?.create_srq(SrqAttr { max_wr, max_sge })?;
                self.named.srqs.insert(self.free_name(name)?, srq);
                Ok(json!({}))
            }
            Command::SrqLimit { srq, limit } => {
                find(&self.named.srqs, &srq)?.set_limit(limit)?;
                Ok(json!({}))
            }
            Command::Qp(create) => self.create_qp(create),
            Command::Modify { qp, to } => self.modify(&qp, to),
            Command::Join { qp, group } => {
                find(&self.named.qps, &qp)?.attach_mcast(group.into())?;
                Ok(json!({}))
            }
            Command::Query { qp } => {
                Ok(json!({"state": find(&self.named.qps, &qp)?.query().state.to_string()}))
            }
            Command::Send { qp, wrs } => self.send(&qp, &wrs),
            Command::Recv { qp, srq, wrs } => self.recv(qp.as_deref(), srq.as_deref(), &wrs),
            Command::Poll { cq, count, timeout } => {
                let cq = find(&self.named.cqs, &cq)?.clone();
                Ok(collect_until(count, timeout, waiting, || {
                    cq.poll_one().map(|wc| translate::completion(&wc))
                }))
            }
            Command::Events { count, timeout } => {
                let context = &self.context;
                Ok(collect_until(count, timeout, waiting, || {
                    context.poll_async_event().map(|event| translate::event(&event))
                }))
            }
            Command::Fill { mr, offset, length, seed } => {
                find(&self.named.mrs, &mr)?.write_at(offset.get(), &pattern(seed, length.get()))?;
                Ok(json!({}))
            }
            Command::Differs { mr, offset, length, seed } => {
                let (offset, length) = (offset.get(), length.get());
                let bytes = find(&self.named.mrs, &mr)?.to_vec(offset..offset + length)?;
                let place =
                    bytes.iter().zip(pattern(seed, length)).position(|(&is, should)| is != should);
                Ok(json!({"differs": place.map(|place| offset + place)}))
            }
            Command::SetWord { mr, offset, value } => {
                find(&self.named.mrs, &mr)?.store_u64(offset.get(), value)?;
                Ok(json!({}))
            }
            Command::Word { mr, offset } => {
                Ok(json!({"value": find(&self.named.mrs, &mr)?.load_u64(offset.get())?}))
            }
            Command::Counters {} => Ok(self
                .context
                .counters()
                .iter()
                .map(|counter| (counter.name, json!(counter.value)))
                .collect()),
            Command::Destroy { name } => self.destroy(&name),
            Command::Clear {} => {
                self.named = Named::default();
                while self.context.poll_async_event().is_some() {}
                Ok(json!({}))
            }
        }
    }

    fn free_name(&self, Name(name): Name) -> Result<String, Failure> {
        let count = self.named.count();
        if count >= OBJECTS {
            return Err(Failure::new(
                "ENOMEM",
                format!(
                    "too many objects: {count}; at most \
                 {OBJECTS}"
                ),
            ));
        }
        Ok(name)
    }

    fn create_mr(&mut self, name: Name, pd: &str, length: usize, access: &[String]) -> Response {
        let name = self.free_name(name)?;
        let bytes = length + self.named.mrs.values().map(MemoryRegion::len).sum::<usize>();
        if bytes > MEMORY {
            let text = format!("too much memory: {bytes} bytes; at most {MEMORY}");
            return Err(Failure::new("ENOMEM", text));
        }
        let region = self.pd(pd)?.allocate(length, translate::access(access)?)?;
        let response = json!({
            "lkey": region.lkey().0, "rkey": region.rkey().0, "address": region.address(),
        });
        self.named.mrs.insert(name, region);
        Ok(response)
    }

    fn create_qp(&mut self, create: CreateQp) -> Response {
        let CreateQp { name, pd, qp_type, send_cq, recv_cq, srq, caps, sq_sig_all } = create;
        let attr = QpInitAttr {
            qp_type: translate::qp_type(&qp_type)?,
            send_cq: find(&self.named.cqs, &send_cq)?.clone(),
            recv_cq: find(&self.named.cqs, &recv_cq)?.clone(),
            srq: srq.map(|srq| find(&self.named.srqs, &srq).cloned()).transpose()?,
            caps: translate::caps(&caps),
            sq_sig_all,
            quirks: self.quirks,
        };
        let qp = self.pd(&pd)?.create_qp(&attr)?;
        let response = json!({"qpn": qp.qpn().get()});
        self.named.qps.insert(self.free_name(name)?, qp);
        Ok(response)
    }

    fn send(&self, qp: &str, wrs: &[Request]) -> Response {
        let wrs: Vec<_> = wrs
            .iter()
            .map(|wr| translate::request(wr, &self.named, &self.context))
            .collect::<Result<_, _>>()?;
        let posted = find(&self.named.qps, qp)?.post_send(&wrs);
        let mut response = post_response(wrs.len(), posted);
        response["rkeys"] = json!(translate::bound_keys(&wrs));
        Ok(response)
    }

    fn recv(&self, qp: Option<&str>, srq: Option<&str>, wrs: &[Receive]) -> Response {
        let wrs: Vec<_> = wrs.iter().map(translate::receive).collect();
        let posted = match (qp, srq) {
            (Some(qp), None) => find(&self.named.qps, qp)?.post_recv(&wrs),
            (None, Some(srq)) => find(&self.named.srqs, srq)?.post_recv(&wrs),
            _ => return Err(Failure::malformed("recv needs a qp or an srq")),
        };
        Ok(post_response(wrs.len(), posted))
    }

    fn hello(&self) -> Value {
        let addresses: Vec<_> =
            self.context.gids().into_iter().map(|gid| gid.to_ip().to_string()).collect();
        json!({"kind": "ours", "addresses": addresses, "active_mtu": self.context.active_mtu().bytes()})
    }

    fn pd(&self, name: &str) -> Result<&ProtectionDomain, Failure> {
        find(&self.named.pds, name)
    }

    fn modify(&self, qp: &str, to: Transition) -> Response {
        let qp = find(&self.named.qps, qp)?;
        let qp_type = qp.query().qp_type;
        match to {
            Transition::Reset {} => qp.to_reset()?,
            Transition::Init { access, qkey } => {
                let access = translate::access(&access)?;
                qp.to_init(Init { access, qkey: QKey(qkey), ..Init::default() })?;
            }
            Transition::Rtr { peer, rq_psn, max_dest_rd_atomic, min_rnr_timer } => {
                qp.to_rtr(self.rtr(
                    qp_type,
                    peer.as_ref(),
                    Psn::new(rq_psn),
                    max_dest_rd_atomic,
                    min_rnr_timer,
                )?)?;
            }
            Transition::Rts { sq_psn, timeout, retry_cnt, rnr_retry, max_rd_atomic } => {
                let requester = RequesterAttr { timeout, retry_cnt, rnr_retry, max_rd_atomic };
                qp.to_rts(Rts::new(qp_type, Psn::new(sq_psn), requester))?;
            }
            Transition::Resume {} => qp.to_rts(Rts::Resume)?,
            Transition::Sqd { notify } => qp.to_sqd(notify)?,
            Transition::Err {} => qp.to_error()?,
        }
        Ok(json!({}))
    }

    fn rtr(
        &self,
        qp_type: QpType,
        peer: Option<&Peer>,
        rq_psn: Psn,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
    ) -> Result<Rtr, Failure> {
        let Some(&Peer { address, qpn, path_mtu }) = peer else { return Ok(Rtr::Ud) };
        let peer = PeerAttr {
            av: translate::address_vector(address, &self.context)?,
            dest_qpn: Qpn::new(qpn),
            path_mtu: translate::mtu(path_mtu)?,
            rq_psn,
        };
        Ok(Rtr::new(qp_type, peer, ResponderAttr { max_dest_rd_atomic, min_rnr_timer }))
    }

    fn destroy(&mut self, name: &str) -> Response {
        let Named { pds, windows, mrs, cqs, srqs, qps } = &mut self.named;
        if let Some(region) = mrs.remove(name) {
            region.deregister()?;
        } else if qps.remove(name).is_none()
            && windows.remove(name).is_none()
            && srqs.remove(name).is_none()
            && cqs.remove(name).is_none()
            && pds.remove(name).is_none()
        {
            return Err(unknown(name));
        }
        Ok(json!({}))
    }
}

fn post_response(count: usize, posted: Result<(), BadWorkRequest>) -> Value {
    match posted {
        Ok(()) => json!({"posted": count}),
        Err(BadWorkRequest { index, error }) => {
            json!({"posted": index, "error": translate::post_errno(error), "text": error.to_string()})
        }
    }
}

/// Ends at the timeout, or when the client has gone.
fn collect_until(
    count: Count,
    timeout: Timeout,
    waiting: &Waiting<'_>,
    mut take: impl FnMut() -> Option<Value>,
) -> Value {
    let end = waiting.until(timeout);
    let mut taken = Vec::new();
    while taken.len() < count.get() {
        match take() {
            Some(value) => taken.push(value),
            None if Instant::now() >= end || waiting.is_gone() => break,
            None => std::thread::sleep(Duration::from_micros(50)),
        }
    }
    Value::Array(taken)
}
