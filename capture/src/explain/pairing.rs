//! Pairs of flows. Packets name the receiver's queue pair. The sender's follows from CM messages,
//! roce's comments, or responses that fit a single flow.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use roce_transport::{
    addr::udp_source_port,
    wire::{Headers, Service},
};

use super::{
    explained::ExplainedPacket,
    fit::{Fit, Requests, Response},
    flow::Flow,
    matching,
    network::{Address, Network},
    reason::Explanation,
};

/// Responses kept until another flow's requests begin.
const KEPT: usize = 16;

#[derive(Default)]
pub(super) struct Pairs {
    others: BTreeMap<Flow, Flow>,
    /// Flows with an undecided other direction, and its number of candidates.
    open: BTreeMap<Flow, usize>,
}

impl Pairs {
    /// `known`: pairs by CM messages and comments.
    pub(super) fn of(
        packets: &[ExplainedPacket],
        flows: &[Option<Flow>],
        known: Vec<(Flow, Flow)>,
    ) -> Self {
        let mut pairs = Self::default();
        for (one, other) in known {
            pairs.pair(one, other);
        }
        let mut fits = Fits::of(packets, flows, &pairs);
        fits.prefer();
        fits.pair_certain(&mut pairs);
        fits.pair_single(flows, &mut pairs);
        fits.record_open(&mut pairs);
        pairs
    }

    pub(super) fn other(&self, flow: &Flow) -> Option<Flow> {
        self.others.get(flow).copied()
    }

    /// Candidates for the other direction; 0 if known or not captured.
    pub(super) fn candidates(&self, flow: &Flow) -> usize {
        self.open.get(flow).copied().unwrap_or_default()
    }

    fn pair(&mut self, one: Flow, other: Flow) {
        if one != other && !self.others.contains_key(&one) && !self.others.contains_key(&other) {
            self.others.insert(one, other);
            self.others.insert(other, one);
        }
    }
}

struct Seen {
    flow: Flow,
    service: Service,
    /// UDP source port, if single.
    port: Option<u16>,
    requests: Requests,
    /// First responses, for requests that begin later.
    responses: Vec<Response>,
    /// Fit of other flows' responses.
    fits: BTreeMap<usize, Fit>,
}

struct Fits {
    flows: Vec<Seen>,
    /// Per flow, those whose requests its responses fit.
    candidates: Vec<BTreeSet<usize>>,
}

impl Fits {
    fn of(packets: &[ExplainedPacket], flows: &[Option<Flow>], pairs: &Pairs) -> Self {
        let mut fits = Self { flows: Vec::new(), candidates: Vec::new() };
        let mut numbers = BTreeMap::new();
        let mut ways: BTreeMap<(Address, Address), Vec<usize>> = BTreeMap::new();
        for (packet, flow) in packets.iter().zip(flows) {
            let (Some(flow), Some(headers)) = (*flow, packet.headers) else { continue };
            let bth = headers.bth();
            let says_nothing =
                packet.why == Explanation::Damaged || bth.opcode.service() == Service::Cnp;
            if says_nothing || pairs.other(&flow).is_some() {
                continue;
            }
            let port = match packet.net {
                Network::Roce(net) => Some(net.src_port),
                Network::InfiniBand { .. } => None,
            };
            let number = *numbers.entry(flow).or_insert_with(|| {
                ways.entry((flow.src, flow.dst)).or_default().push(fits.flows.len());
                fits.flows.push(Seen {
                    flow,
                    service: bth.opcode.service(),
                    port,
                    requests: Requests::default(),
                    responses: Vec::new(),
                    fits: BTreeMap::new(),
                });
                fits.flows.len() - 1
            });
            let seen = &mut fits.flows[number];
            seen.port = seen.port.filter(|its| Some(*its) == port);
            let back = ways.get(&(flow.dst, flow.src)).map(Vec::as_slice).unwrap_or_default();
            if bth.opcode.operation().is_response() {
                fits.response(number, back, Response::of(packet.at, &headers));
            } else if bth.opcode.service() != Service::Uc {
                fits.request(number, back, packet.at, &headers);
            }
        }
        for seen in &mut fits.flows {
            let Seen { requests, fits, .. } = seen;
            fits.values_mut().for_each(|fit| fit.end(requests));
        }
        fits.find_candidates();
        fits
    }

    fn response(&mut self, number: usize, back: &[usize], response: Response) {
        for &asker in back.iter().filter(|asker| **asker != number) {
            let Seen { requests, fits, .. } = &mut self.flows[asker];
            if !requests.is_empty() {
                fits.entry(number).or_default().take(requests, &response);
            }
        }
        let responses = &mut self.flows[number].responses;
        if responses.len() < KEPT {
            responses.push(response);
        }
    }

    fn request(&mut self, number: usize, back: &[usize], at: Duration, headers: &Headers) {
        let Seen { requests, fits, .. } = &mut self.flows[number];
        let begins = requests.is_empty();
        if requests.reset(headers) {
            fits.values_mut().for_each(Fit::reset);
        }
        let Some(psn) = requests.take(headers) else { return };
        fits.values_mut().for_each(|fit| fit.ask(psn, at));
        for &responder in back.iter().filter(|responder| begins && **responder != number) {
            let responses = self.flows[responder].responses.clone();
            let Seen { requests, fits, .. } = &mut self.flows[number];
            let fit = fits.entry(responder).or_default();
            responses.iter().for_each(|response| fit.before(requests, response));
        }
    }

    fn find_candidates(&mut self) {
        let has_gaps = self.flows.iter().any(|seen| seen.requests.has_gaps);
        let mut nearly = vec![BTreeSet::new(); self.flows.len()];
        self.candidates = nearly.clone();
        for (asker, seen) in self.flows.iter().enumerate() {
            for (&responder, fit) in &seen.fits {
                if fit.is_right(has_gaps) {
                    self.candidates[responder].insert(asker);
                }
                if fit.is_mostly_right() {
                    nearly[responder].insert(asker);
                }
            }
        }
        for (right, nearly) in self.candidates.iter_mut().zip(nearly) {
            // missing packets may speak against the right one
            if has_gaps || right.is_empty() {
                *right = nearly;
            }
        }
    }

    /// Decides between candidates by MSN or UDP source port.
    fn prefer(&mut self) {
        for responder in 0..self.flows.len() {
            let counts = |asker: usize| self.flows[asker].fits.get(&responder)?.counts();
            let candidates = &self.candidates[responder];
            let only = |is_it: &dyn Fn(usize) -> bool| {
                let mut those = candidates.iter().copied().filter(|&asker| is_it(asker));
                those.next().filter(|_| those.next().is_none())
            };
            let by_msn = only(&|asker| counts(asker) != Some(false))
                .filter(|&asker| counts(asker) == Some(true));
            let by_port = || only(&|asker| self.has_ports_of_a_pair(asker, responder));
            if candidates.len() > 1
                && let Some(preferred) = by_msn.or_else(by_port)
            {
                self.candidates[responder] = BTreeSet::from([preferred]);
            }
        }
    }

    /// True for source ports of a connection in Linux and most adapters: from both QPNs, or each
    /// from its own.
    fn has_ports_of_a_pair(&self, one: usize, other: usize) -> bool {
        let [one, other] = [one, other].map(|number| &self.flows[number]);
        let (Some(port), Some(others)) = (one.port, other.port) else { return false };
        let own = |flow: &Flow| flow.qpn.get() as u16;
        let by_both = udp_source_port(0, one.flow.qpn, other.flow.qpn);
        [port, others] == [by_both; 2] || [port, others] == [own(&other.flow), own(&one.flow)]
    }

    fn may_be(&self, responder: usize, asker: usize) -> bool {
        self.candidates[responder].contains(&asker)
            && (self.candidates[asker].is_empty() || self.candidates[asker].contains(&responder))
    }

    /// Unpaired flows with responses in one order of addresses, and their candidates.
    fn rows(&self, order: Ordering, pairs: &Pairs) -> BTreeMap<usize, BTreeSet<usize>> {
        let is_free = |number: usize| pairs.other(&self.flows[number].flow).is_none();
        let is_row = |&number: &usize| {
            let Flow { src, dst, .. } = self.flows[number].flow;
            src.cmp(&dst) == order && is_free(number) && !self.candidates[number].is_empty()
        };
        let row = |responder: usize| {
            let askers = self.candidates[responder].iter().copied();
            let askers = askers.filter(|&asker| is_free(asker) && self.may_be(responder, asker));
            (responder, askers.collect())
        };
        (0..self.flows.len()).filter(is_row).map(row).collect()
    }

    /// Pairs flows whose responses fit nowhere else.
    fn pair_certain(&self, pairs: &mut Pairs) {
        loop {
            let before = pairs.others.len();
            for order in [Ordering::Less, Ordering::Equal, Ordering::Greater] {
                let rows = self.rows(order, pairs);
                // with one address, both directions are alike to a matching
                let certain = match order {
                    Ordering::Equal => matching::only(&rows),
                    _ => matching::certain(&rows),
                };
                for (responder, asker) in certain {
                    pairs.pair(self.flows[responder].flow, self.flows[asker].flow);
                }
            }
            if pairs.others.len() == before {
                return;
            }
        }
    }

    /// Pairs the only flows between two addresses, unless contradicted. More flows may be halves of
    /// two connections.
    fn pair_single(&self, flows: &[Option<Flow>], pairs: &mut Pairs) {
        let mut ways: BTreeMap<(Address, Address), BTreeSet<Flow>> = BTreeMap::new();
        for flow in flows.iter().flatten() {
            ways.entry((flow.src, flow.dst)).or_default().insert(*flow);
        }
        let only = |way: (Address, Address)| {
            let flow = ways.get(&way).filter(|flows| flows.len() == 1)?.first()?;
            self.flows.iter().position(|seen| seen.flow == *flow)
        };
        let is_wrong = |asker: usize, responder: usize| {
            self.flows[asker].fits.get(&responder).is_some_and(Fit::is_wrong)
        };
        for &(src, dst) in ways.keys() {
            if let (Some(one), Some(other)) = (only((src, dst)), only((dst, src)))
                && self.flows[one].service == self.flows[other].service
                && !is_wrong(one, other)
                && !is_wrong(other, one)
            {
                pairs.pair(self.flows[one].flow, self.flows[other].flow);
            }
        }
    }

    fn record_open(&self, pairs: &mut Pairs) {
        let is_free = |number: usize| pairs.other(&self.flows[number].flow).is_none();
        let mut open = BTreeMap::new();
        for (asker, seen) in self.flows.iter().enumerate().filter(|(number, _)| is_free(*number)) {
            for (&responder, fit) in seen.fits.iter().filter(|(number, _)| is_free(**number)) {
                let candidates = &self.candidates[responder];
                // if too much is missing, any partial fit is possible
                if self.may_be(responder, asker) || candidates.is_empty() && fit.fits_at_times() {
                    for number in [responder, asker] {
                        *open.entry(self.flows[number].flow).or_default() += 1;
                    }
                }
            }
        }
        pairs.open = open;
    }
}
