use std::time::{Duration, Instant};

use roce::{
    BadWorkRequest, Context, Init, MemoryRegion, PeerAttr, ProtectionDomain, Psn, QKey, QpInitAttr,
    Qpn, Quirks, RequesterAttr, ResponderAttr, Rtr, Rts, SrqAttr, WindowType,
};
use serde_json::{Value, json};

use crate::{
    bound::{COMMANDS, Count, MEMORY, Name, OBJECTS, Timeout, Waiting},
    command::{Command, CreateQp, Receive, Request, Transition},
    failure::Failure,
    named::{Named, find, unknown},
    translate::{self, pattern},
};

type Response = Result<Value, Failure>;

/// A device and its objects.
#[derive(Debug)]
pub struct Agent {
    context: Context,
    quirks: Quirks,
    named: Named,
}

impl Agent {
    /// `quirks`: those of its queue pairs' peers.
    #[must_use]
    pub fn new(context: Context, quirks: Quirks) -> Self {
        Self { context, quirks, named: Named::default() }
    }

    /// Executes a line, and returns the response without its end. Waits end after 30 s in all, or
    /// once `is_gone` is true.
    ///
    /// # Errors
    /// The line is no JSON list.
    pub fn execute(
        &mut self,
        line: &str,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<String, serde_json::Error> {
        let commands: Vec<Value> = serde_json::from_str(line)?;
        if commands.len() > COMMANDS {
            let count = commands.len();
            let text = format!("too many commands in a line: {count}; at most {COMMANDS}");
            return serde_json::to_string(&[Failure::malformed(text).into_json()]);
        }
        let waiting = Waiting::begin(is_gone);
        let responses: Vec<_> = commands
            .into_iter()
            .take_while(|_| !waiting.is_gone())
            .map(|command| {
                serde_json::from_value(command)
                    .map_err(Failure::malformed)
                    .and_then(|command| self.carry_out(command, &waiting))
                    .unwrap_or_else(Failure::into_json)
            })
            .collect();
        serde_json::to_string(&responses)
    }

    fn carry_out(&mut self, command: Command, waiting: &Waiting<'_>) -> Response {
        match command {
            Command::Hello {} => return Ok(self.hello()),
            Command::Pd { name } => {
                let name = self.free_name(name)?;
                self.named.pds.insert(name, self.context.alloc_pd()?);
            }
            Command::Mr { name, pd, length, access } => {
                return self.create_mr(name, &pd, length.get(), &access);
            }
            Command::Window { name, pd, window_type } => {
                let window_type =
                    if window_type == 1 { WindowType::Type1 } else { WindowType::Type2B };
                let name = self.free_name(name)?;
                self.named.windows.insert(name, self.pd(&pd)?.alloc_window(window_type)?);
            }
            Command::Cq { name, size } => {
                let name = self.free_name(name)?;
                self.named.cqs.insert(name, self.context.create_cq(size.get(), None)?);
            }
            Command::Srq { name, pd, max_wr, max_sge } => {
                let srq = self.pd(&pd)?.create_srq(SrqAttr { max_wr, max_sge })?;
                self.named.srqs.insert(self.free_name(name)?, srq);
            }
            Command::SrqLimit { srq, limit } => find(&self.named.srqs, &srq)?.set_limit(limit)?,
            Command::Qp(create) => return self.create_qp(create),
            Command::Modify { qp, to } => self.modify(&qp, to)?,
            Command::Join { qp, group } => {
                find(&self.named.qps, &qp)?.attach_mcast(group.into())?;
            }
            Command::Query { qp } => {
                let state = find(&self.named.qps, &qp)?.query().state;
                return Ok(json!({"state": state.to_string()}));
            }
            Command::Send { qp, wrs } => return self.send(&qp, &wrs),
            Command::Recv { qp, srq, wrs } => {
                return self.recv(qp.as_deref(), srq.as_deref(), &wrs);
            }
            Command::Poll { cq, count, timeout } => {
                let cq = find(&self.named.cqs, &cq)?;
                return Ok(collect_until(count, timeout, waiting, || {
                    cq.poll_one().map(|wc| translate::completion(&wc))
                }));
            }
            Command::Events { count, timeout } => {
                return Ok(collect_until(count, timeout, waiting, || {
                    self.context.poll_async_event().map(|event| translate::event(&event))
                }));
            }
            Command::Fill { mr, offset, length, seed } => {
                find(&self.named.mrs, &mr)?.write_at(offset.get(), &pattern(seed, length.get()))?;
            }
            Command::Differs { mr, offset, length, seed } => {
                let (offset, length) = (offset.get(), length.get());
                let bytes = find(&self.named.mrs, &mr)?.to_vec(offset..offset + length)?;
                let place =
                    bytes.iter().zip(pattern(seed, length)).position(|(&is, should)| is != should);
                return Ok(json!({"differs": place.map(|place| offset + place)}));
            }
            Command::SetWord { mr, offset, value } => {
                find(&self.named.mrs, &mr)?.store_u64(offset.get(), value)?;
            }
            Command::Word { mr, offset } => {
                let value = find(&self.named.mrs, &mr)?.load_u64(offset.get())?;
                return Ok(json!({"value": value}));
            }
            Command::Counters {} => {
                let counters = self.context.counters();
                return Ok(counters.iter().map(|it| (it.name, json!(it.value))).collect());
            }
            Command::Destroy { name } => self.destroy(&name)?,
            Command::Clear {} => {
                self.named = Named::default();
                while self.context.poll_async_event().is_some() {}
            }
        }
        Ok(json!({}))
    }

    fn free_name(&self, Name(name): Name) -> Result<String, Failure> {
        let count = self.named.count();
        if count >= OBJECTS {
            let text = format!("too many objects: {count}; at most {OBJECTS}");
            return Err(Failure::new("ENOMEM", text));
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
            caps,
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

    fn modify(&self, qp: &str, to: Transition) -> Result<(), Failure> {
        let qp = find(&self.named.qps, qp)?;
        let qp_type = qp.query().qp_type;
        match to {
            Transition::Reset {} => qp.to_reset()?,
            Transition::Init { access, qkey } => {
                let access = translate::access(&access)?;
                qp.to_init(Init { access, qkey: QKey(qkey), ..Init::default() })?;
            }
            Transition::Rtr { peer: None, .. } => qp.to_rtr(Rtr::Ud)?,
            Transition::Rtr { peer: Some(peer), rq_psn, max_dest_rd_atomic, min_rnr_timer } => {
                let peer = PeerAttr {
                    av: translate::address_vector(peer.address, &self.context)?,
                    dest_qpn: Qpn::new(peer.qpn),
                    path_mtu: translate::mtu(peer.path_mtu)?,
                    rq_psn: Psn::new(rq_psn),
                };
                let responder = ResponderAttr { max_dest_rd_atomic, min_rnr_timer };
                qp.to_rtr(Rtr::new(qp_type, peer, responder))?;
            }
            Transition::Rts { sq_psn, timeout, retry_cnt, rnr_retry, max_rd_atomic } => {
                let requester = RequesterAttr { timeout, retry_cnt, rnr_retry, max_rd_atomic };
                qp.to_rts(Rts::new(qp_type, Psn::new(sq_psn), requester))?;
            }
            Transition::Resume {} => qp.to_rts(Rts::Resume)?,
            Transition::Sqd { notify } => qp.to_sqd(notify)?,
            Transition::Err {} => qp.to_error()?,
        }
        Ok(())
    }

    fn destroy(&mut self, name: &str) -> Result<(), Failure> {
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
        Ok(())
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
