//! Functions that contexts, queue pairs and completion queues of programs that are checked have in
//! the place of others: they note what is posted and what completes ([`crate::hooks::check`]), and call
//! those.

mod poll;
mod post;

use crate::{
    hooks::check,
    layout::{ibv_qp_ex, verbs_context},
    qp_ex,
};
use roce_provider::transport::qp::QpType;

/// Puts them into the operations of a context.
pub(crate) fn set_operations(verbs: &mut verbs_context) {
    verbs.create_cq_ex = Some(poll::checked_create_cq_ex);
    verbs.context.ops.poll_cq = Some(poll::checked_poll_cq);
    verbs.context.ops.req_notify_cq = Some(poll::checked_req_notify_cq);
    verbs.context.ops.post_send = Some(post::checked_post_send);
    verbs.context.ops.post_recv = Some(post::checked_post_recv);
    verbs.context.ops.post_srq_recv = Some(post::checked_post_srq_recv);
}

/// Sets the functions for the requests that a queue pair is made for.
pub(crate) fn set_requests(c: &mut ibv_qp_ex, qp_type: QpType, send_ops: u64) {
    qp_ex::set_operations(c, qp_type, send_ops);
    if check::is_on() {
        c.wr_complete = Some(post::checked_wr_complete);
    }
}
