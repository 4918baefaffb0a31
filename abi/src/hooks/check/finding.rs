use super::stack::Stack;

/// A mistake that goes unnoticed by luck.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) kind: Kind,
    pub(crate) what: String,
    /// The first is the mistake's, and identifies the finding.
    pub(crate) stacks: Vec<(&'static str, Stack)>,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal: $rule:literal; $advice:literal;)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub(crate) enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            pub(crate) const ALL: &[Self] = &[$(Self::$kind),*];

            /// Stable across versions.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }

            pub(crate) const fn rule(self) -> &'static str {
                match self {
                    $(Self::$kind => $rule,)*
                }
            }

            pub(crate) const fn advice(self) -> &'static str {
                match self {
                    $(Self::$kind => $advice,)*
                }
            }
        }
    };
}

kinds! {
    /// By the program.
    SendBufferChanged "send_buffer_changed":
        "the buffer belongs to the adapter until the completion of the request is polled: it may read it late, and again for a retransmission, so that the peer gets old bytes, new ones, or both";
        "poll the completion before you write to the buffer, or take another one (ibv_post_send with IBV_SEND_INLINE copies)";
    /// By incoming data.
    SendBufferOverwritten "send_buffer_overwritten":
        "data that arrives is placed in a buffer that is being sent: the peer may get some of it back";
        "receive, and let peers write, elsewhere until the completion of the send is polled";
    ReceiveOverlap "receive_overlap":
        "two messages can be placed in the same bytes before the first of them is looked at: one overwrites the other";
        "give each posted receive bytes of its own";
    ReceiveWritten "receive_written":
        "the buffer of a receive belongs to the adapter until its completion is polled: a message may be placed there at any time, before or after what the program writes";
        "poll the completion before you write to the buffer, or prepare the buffer before it is posted";
    ReadTargetWritten "read_target_written":
        "the target of a READ or an atomic belongs to the adapter until its completion is polled: the answer may be placed there before or after what the program writes";
        "poll the completion before you write to the buffer";
    FenceMissing "fence_missing":
        "a request begins before the READs and atomics in front of it are done: it sends what was in the buffer before they fill it, and a READ whose answer is lost is repeated, and fetches what a later WRITE has put there";
        "set IBV_SEND_FENCE on the later request, which is not inline, or poll the completion first; of another queue pair, poll it in any case";
    MemoryUnmapped "memory_unmapped":
        "the memory of a posted request is gone: with hardware its pages stay pinned, and the data is sent from or placed in memory that nobody sees";
        "poll the completion, then ibv_dereg_mr, then free or unmap";
    RegionInUse "region_in_use":
        "requests that are posted need the region: they fail with IBV_WC_LOC_PROT_ERR, unless they happen to be done before";
        "poll the completions, or destroy the queue pair, before ibv_dereg_mr";
    AddressHandleInUse "address_handle_in_use":
        "sends that are posted need the address handle: an adapter may look at it when it carries them out, and memory that is free then has another address in it";
        "poll the completions of the sends before ibv_destroy_ah";
    DeregisteredKey "deregistered_key":
        "the region is deregistered, and a peer still uses its key: the adapter refuses it, and both queue pairs fail, IBV_WC_REM_ACCESS_ERR at the peer";
        "have the peer say when it is done before ibv_dereg_mr; memory that is registered again has a new rkey, which the peer must be given";
    LkeyAsRkey "lkey_as_rkey":
        "a peer uses the lkey of a region: it equals the rkey with some adapters, and with others the request fails, IBV_WC_REM_ACCESS_ERR; checks make the two differ";
        "give the peer the rkey of ibv_reg_mr's region; lkey is for the lists of this process";
    RequestUnreadable "request_unreadable":
        "the next of a request leads to memory that is not there: with other libraries the process dies in this call";
        "set next of each request, and of the last one to NULL: structures of a stack or of malloc hold anything";
    CqOverrun "cq_overrun":
        "more requests are posted than the completion queue has room for: if they complete before it is polled, it overruns, and all of its queue pairs fail";
        "give ibv_create_cq room for every signaled send and every receive that is posted at a time (max_send_wr and max_recv_wr of all its queue pairs)";
    /// Advice: depends on the peers' sends.
    SharedQueueOverrun "shared_queue_overrun":
        "the shared receive queue and what else is posted are more than a completion queue has room for: if peers send as much before it is polled, it overruns, and all of its queue pairs fail";
        "advice, not a mistake where peers have credits: give ibv_create_cq room for max_wr of the shared receive queue, or for all credits";
    /// Advice.
    EachSignaled "each_request_signaled":
        "every request of a deep send queue is signaled: each costs a completion that is written and polled, where requests of one queue complete in their order";
        "advice, not a mistake: sq_sig_all = 0 and IBV_SEND_SIGNALED on every 16th request or so; its completion stands for those in front of it";
    NothingSignaled "nothing_signaled":
        "the send queue is full of requests that are not signaled: adapters take the room back when a completion is polled, and here none will come, so that ibv_post_send fails with ENOMEM for ever";
        "signal one request in max_send_wr / 2 at least (IBV_SEND_SIGNALED), and poll its completion";
    SendQueueFull "send_queue_full":
        "more sends are posted than max_send_wr before their completions were polled: adapters take the room back when a completion is polled, and refuse this with ENOMEM";
        "count what is posted, and poll completions first; or a greater cap.max_send_wr";
    /// `ibv_destroy_cq` blocks.
    CqEventsUnacknowledged "cq_events_unacknowledged":
        "ibv_destroy_cq waits, for ever, until all events of the completion queue that ibv_get_cq_event gave are acknowledged";
        "ibv_ack_cq_events for every event, at the latest before ibv_destroy_cq";
    /// `ibv_destroy_qp` and the like block.
    AsyncEventsUnacknowledged "async_events_unacknowledged":
        "destroying an object waits, for ever, until all events about it that ibv_get_async_event gave are acknowledged";
        "ibv_ack_async_event after every ibv_get_async_event";
    /// Counts that never match.
    TooManyAcknowledged "too_many_acknowledged":
        "more events are acknowledged than were taken: libibverbs compares the two counts, and destroying the object waits, for ever, until they are equal";
        "acknowledge each event once: the number that ibv_get_cq_event or ibv_get_async_event gave, and none if it gave none";
    /// `rdma_destroy_id` blocks.
    CmEventsUnacknowledged "cm_events_unacknowledged":
        "rdma_destroy_id and rdma_migrate_id wait, for ever, until all events of the id that rdma_get_cm_event gave are acknowledged";
        "rdma_ack_cm_event for every event, before rdma_destroy_id; of a request it is the listener that waits for it";
    CmChannelInUse "cm_channel_in_use":
        "ids use the event channel that is destroyed: librdmacm frees it, and each later call on them uses its closed descriptor, or another file that has its number by then";
        "rdma_destroy_id for every id of the channel, then rdma_destroy_event_channel";
    EndlessWait "endless_wait":
        "a thread waits for an event, nothing is under way that could bring it, and the other threads wait as well";
        "arm the completion queue before each wait (ibv_req_notify_cq), poll it after that, and wait on the channel that it was made with; wait for events of rdma_cm on the channel of the id";
    BatchNotEnded "batch_not_ended":
        "a batch has a lock from its begin to its end: the thread that begins another one in between waits for itself, for ever";
        "ibv_wr_complete or ibv_wr_abort after each ibv_wr_start, and ibv_end_poll after each ibv_start_poll that gave 0, also where ibv_next_poll gave ENOENT and where the program leaves early";
    UsedByTwoThreads "used_by_two_threads":
        "the program has promised that one thread at a time uses the object, so that libraries take no lock: two threads change its state at once";
        "leave out IBV_CREATE_CQ_ATTR_SINGLE_THREADED, or the thread domain, or have each thread use queues of its own";
    FailedCompletionRead "failed_completion_read":
        "of a completion whose status is not IBV_WC_SUCCESS only wr_id, status, qp_num and vendor_err are valid: adapters leave anything in the others";
        "look at the status first, and keep what the request was by its wr_id";
    ForkNotPrepared "fork_not_prepared":
        "the process forks while memory is registered, and ibv_fork_init was not called: with kernels before 5.12, what the parent writes to such a page next goes to a copy, and the adapter keeps to the old one";
        "call ibv_fork_init before the first ibv_reg_mr, or ask ibv_is_fork_initialized whether it is needed; to start a program, posix_spawn";
    UsedInChild "used_in_child":
        "a forked child has none of the objects of its parent: an adapter keeps to the parent's memory, in which the child has no share";
        "have each process open the device and make objects of its own, after the fork";
    LostWakeUp "lost_wake_up":
        "a completion that comes between the last ibv_poll_cq and ibv_req_notify_cq causes no event: the program sleeps, and it lies there";
        "after ibv_req_notify_cq poll until the queue is empty, and wait only then";
    ResetDiscarded "reset_discarded":
        "what is posted when a queue pair goes to RESET is forgotten: it has no completions, and who polls for them polls for ever";
        "to have requests flushed, IBV_QPS_ERR comes first, and IBV_QPS_RESET when their completions are polled";
    ArmedWithoutChannel "armed_without_channel":
        "the call succeeds, with all adapters, and nothing comes of it: a completion queue that was made without a channel has no events, and who waits for one waits for ever";
        "pass the channel to ibv_create_cq (or ibv_create_cq_ex), or poll and leave ibv_req_notify_cq out";
    ObjectAlive "object_alive":
        "objects are alive at the end of the process: it leaks them, and a process that lives on runs into limits";
        "destroy them, those that were made last first";
    UsedAfterDestroy "used_after_destroy":
        "the object is destroyed: with other libraries its memory is free, and such a call crashes, or changes something else";
        "destroy an object when nothing uses it any more, and once";
    TimeoutZero "timeout_zero":
        "timeout is 0: the adapter waits for an answer for ever, and one lost packet stops the queue pair without an error";
        "set timeout to 14 (67 ms) or so, in ibv_modify_qp to RTS";
    RetryZero "retry_zero":
        "retry_cnt is 0: one lost packet fails the queue pair with IBV_WC_RETRY_EXC_ERR";
        "set retry_cnt to 7, in ibv_modify_qp to RTS";
    /// 0 is the longest.
    RnrTimerZero "rnr_timer_zero":
        "min_rnr_timer is 0, which is not the shortest time but the longest: a sender that finds no receive waits 655 ms";
        "set min_rnr_timer to 12 (0.64 ms) or so, in ibv_modify_qp to RTR";
    ReadsExceedPeer "reads_exceed_peer":
        "max_rd_atomic is more than max_dest_rd_atomic of the peer: with so many READs and atomics in flight it refuses one, and both queue pairs fail, IBV_WC_REM_INV_REQ_ERR";
        "exchange max_dest_rd_atomic with the peer, and set max_rd_atomic to no more, in ibv_modify_qp to RTS";
}

impl Kind {
    pub(crate) const fn is_advice(self) -> bool {
        matches!(self, Self::EachSignaled | Self::SharedQueueOverrun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_of_its_own_and_says_what_to_do() {
        let names: std::collections::BTreeSet<_> =
            Kind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), Kind::ALL.len());
        for kind in Kind::ALL {
            assert!(kind.name().bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase()));
            for text in [kind.rule(), kind.advice()] {
                assert!(!text.is_empty() && !text.ends_with('.') && !text.contains("  "), "{text}");
            }
        }
    }
}
