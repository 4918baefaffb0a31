//! Datagram queue pairs of `roce udaddy` and `roce mckey`.

use roce::{
    Access, Context, MemoryRegion, ProtectionDomain, RecvWr, SendWr, UdDestination, Wc, WcOpcode,
    cm::{CmId, EventKind, UDP_QKEY},
};

use crate::{
    common::{self, EventLoop, Events, MessageArgs, Ready},
    failure::{Failure, fail},
};

/// Precedes a received datagram.
pub(crate) const GRH: usize = 40;

pub(crate) struct Datagrams {
    pub(crate) nodes: Vec<Node>,
    pub(crate) context: Context,
    pd: ProtectionDomain,
    event_loop: EventLoop,
    outgoing: MemoryRegion,
    incoming: MemoryRegion,
    size: usize,
    count: u32,
}

pub(crate) struct Node {
    pub(crate) id: CmId,
    pub(crate) to: Option<UdDestination>,
    pub(crate) sent: u32,
    pub(crate) received: u32,
}

impl Datagrams {
    pub(crate) fn new(
        tool: &str,
        id: &CmId,
        nodes: u32,
        messages: &MessageArgs,
        events: &Events,
    ) -> Result<Self, Failure> {
        let MessageArgs { message_count: count, message_size: size } = *messages;
        let context = id.context().ok_or("the id has no device")?;
        let mtu = context.active_mtu().bytes();
        if size > mtu {
            fail!(
                "{tool}: message_size {size} is larger than active mtu {mtu}; use -S {mtu} or less"
            );
        }
        let completions = (nodes as usize * count as usize * 2).max(1);
        let event_loop = EventLoop::new(&context, completions, &events.channel)?;
        let (pd, size) = (id.pd()?, size as usize);
        let outgoing = pd.allocate(size.max(1), Access::empty())?;
        let incoming = pd.allocate(nodes as usize * (GRH + size), Access::LOCAL_WRITE)?;
        Ok(Self { nodes: Vec::new(), context, pd, event_loop, outgoing, incoming, size, count })
    }

    /// `receives`: posts a receive request per message.
    pub(crate) fn begin(&mut self, id: CmId, receives: bool) -> Result<&mut Node, Failure> {
        let caps = common::caps(self.count.max(1), self.count.max(1));
        let qp = common::create_qp(&id, Some(&self.pd), &self.event_loop.cq, caps)?;
        let index = self.nodes.len();
        if receives {
            let start = index * (GRH + self.size);
            let into = self.incoming.sge(start..start + GRH + self.size);
            let wrs: Vec<_> = (0..self.count).map(|_| RecvWr::new(index as u64, [into])).collect();
            qp.post_recv(&wrs)?;
        }
        self.nodes.push(Node { id, to: None, sent: 0, received: 0 });
        Ok(&mut self.nodes[index])
    }

    pub(crate) fn send(&self) -> Result<(), Failure> {
        for (index, node) in self.nodes.iter().enumerate() {
            let qp = node.id.qp().ok_or("an id has no queue pair")?;
            let to = node.to.ok_or("a peer is unknown")?;
            let wr = SendWr::send_to(index as u64, to, self.outgoing.sge(0..self.size));
            let wr = wr.with_immediate(qp.qpn().get().to_be_bytes());
            qp.post_send(&vec![wr; self.count as usize])?;
        }
        Ok(())
    }

    /// Until this is the count in all nodes. Learns unknown senders.
    pub(crate) fn wait(&mut self, number: impl Fn(&Node) -> u32) -> Result<(), Failure> {
        while self.nodes.iter().any(|node| number(node) < self.count) {
            match self.event_loop.next()? {
                Ready::Done(wc) => self.complete(&wc)?,
                Ready::Event(event) => match event.kind() {
                    EventKind::ConnectRequest => event.id().reject(&[])?,
                    EventKind::AddrChange | EventKind::TimewaitExit => {}
                    _ => return Err(common::unexpected(&event, None)),
                },
            }
        }
        Ok(())
    }

    fn complete(&mut self, wc: &Wc) -> Result<(), Failure> {
        let ok = wc.result.map_err(|error| format!("failed polling CQ: {error}"))?;
        let index = wc.wr_id as usize;
        if ok.opcode != WcOpcode::Recv {
            self.nodes[index].sent += 1;
            return Ok(());
        }
        let length = ok.byte_len as usize;
        if length != GRH + self.size {
            let (got, wanted) = (length - GRH.min(length), self.size);
            fail!("a message has {got} bytes, expected {wanted}; use the same -S on both sides");
        }
        if self.nodes[index].to.is_none() {
            let mut area = [0; GRH];
            self.incoming.read_at(index * (GRH + self.size), &mut area)?;
            let qpn = ok.src_qp.ok_or("a message has no sender")?;
            self.nodes[index].to = Some(self.pd.create_ah_from_wc(wc, &area)?.to(qpn, UDP_QKEY));
        }
        self.nodes[index].received += 1;
        Ok(())
    }
}
