//! Registration and posting in one call (`rdma_verbs.h`).

use roce_transport::{
    mem::Access,
    work::{Data, RecvWr, Remote, SendFlags, SendOp, SendWr, Sge, UdDestination, Wc},
};

use super::{error::CmError, id::CmId};
use crate::{MemoryRegion, QueuePair};

/// Methods that post one request: documentation, name, further argument, operation.
macro_rules! posts {
    ($($(#[doc = $doc:literal])* $name:ident($($argument:ident: $type:ty)?) $op:expr;)*) => {
        $($(#[doc = $doc])*
        ///
        /// # Errors
        /// [`CmError::NoQueuePair`], [`CmError::Post`].
        pub fn $name(
            &self,
            wr_id: u64,
            data: impl Into<Data>,
            flags: SendFlags,
            $($argument: $type,)?
        ) -> Result<(), CmError> {
            let wr = SendWr { wr_id, op: $op, data: data.into(), flags, remote_srq: None };
            Ok(self.queue_pair()?.post_send(&[wr])?)
        })*
    };
}

impl CmId {
    /// Allocates and registers `length` zero bytes for messages (`rdma_reg_msgs`).
    ///
    /// # Errors
    /// [`CmError::NoDevice`], [`CmError::Object`], [`CmError::Region`].
    pub fn reg_msgs(&self, length: usize) -> Result<MemoryRegion, CmError> {
        Ok(self.pd()?.allocate(length, Access::LOCAL_WRITE)?)
    }

    /// Allocates memory that the peer may read (`rdma_reg_read`).
    ///
    /// # Errors
    /// As for [`reg_msgs`](Self::reg_msgs).
    pub fn reg_read(&self, length: usize) -> Result<MemoryRegion, CmError> {
        Ok(self.pd()?.allocate(length, Access::LOCAL_WRITE | Access::REMOTE_READ)?)
    }

    /// Allocates memory that the peer may write (`rdma_reg_write`).
    ///
    /// # Errors
    /// As for [`reg_msgs`](Self::reg_msgs).
    pub fn reg_write(&self, length: usize) -> Result<MemoryRegion, CmError> {
        Ok(self.pd()?.allocate(length, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?)
    }

    /// Posts a receive request (`rdma_post_recv`, `rdma_post_recvv`).
    ///
    /// # Errors
    /// [`CmError::NoQueuePair`], [`CmError::Post`].
    pub fn post_recv(
        &self,
        wr_id: u64,
        sges: impl IntoIterator<Item = Sge>,
    ) -> Result<(), CmError> {
        Ok(self.queue_pair()?.post_recv(&[RecvWr::new(wr_id, sges)])?)
    }

    posts! {
        /// Posts a SEND of region pieces or [`Data::inline`] bytes (`rdma_post_send`,
        /// `rdma_post_sendv`).
        post_send() SendOp::Send { immediate: None };
        /// Posts a READ of the peer's memory (`rdma_post_read`, `rdma_post_readv`).
        post_read(remote: Remote) SendOp::Read { remote };
        /// Posts a WRITE to the peer's memory (`rdma_post_write`, `rdma_post_writev`).
        post_write(remote: Remote) SendOp::Write { remote, immediate: None };
        /// Posts a datagram (`rdma_post_ud_send`).
        post_ud_send(to: UdDestination) SendOp::SendTo { to, immediate: None };
    }

    /// Waits for the next send completion (`rdma_get_send_comp`); busy-polls a program's queue.
    ///
    /// # Errors
    /// [`CmError::NoQueuePair`]; [`CmError::Io`] if the system cannot wait.
    pub fn get_send_comp(&self) -> Result<Wc, CmError> {
        let completions = self.inner().queues.as_ref().map(|queues| queues.send.clone());
        completions.ok_or(CmError::NoQueuePair)?.next()
    }

    /// Waits for the next receive completion (`rdma_get_recv_comp`).
    ///
    /// # Errors
    /// As for [`get_send_comp`](Self::get_send_comp).
    pub fn get_recv_comp(&self) -> Result<Wc, CmError> {
        let completions = self.inner().queues.as_ref().map(|queues| queues.recv.clone());
        completions.ok_or(CmError::NoQueuePair)?.next()
    }

    fn queue_pair(&self) -> Result<QueuePair, CmError> {
        self.qp().ok_or(CmError::NoQueuePair)
    }
}
