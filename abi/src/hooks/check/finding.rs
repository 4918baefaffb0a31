use super::stack::Stack;

/// A mistake that goes unnoticed by luck.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) kind: Kind,
    pub(crate) what: String,
    /// The first identifies the finding.
    pub(crate) stacks: Vec<(&'static str, Stack)>,
}

impl Finding {
    /// About the program's current call; `done` is its participle.
    pub(crate) fn here(
        kind: Kind,
        done: &'static str,
        what: String,
        others: impl IntoIterator<Item = (&'static str, Stack)>,
    ) -> Self {
        let stacks = [(done, Stack::here())].into_iter().chain(others).collect();
        Self { kind, what, stacks }
    }
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
    SendBufferChanged "send_buffer_changed":
        "the adapter owns the buffer until the request's completion is polled: it may read the \
         buffer late, or again to retransmit, and the peer gets old bytes, new bytes or both";
        "poll the completion before you write to the buffer, or use another buffer (ibv_post_send \
         with IBV_SEND_INLINE copies)";
    SendBufferOverwritten "send_buffer_overwritten":
        "incoming data overwrites a buffer that is being sent: the peer may get its own data back";
        "use another buffer for receives and peers' writes until the send's completion is polled";
    ReceiveOverlap "receive_overlap":
        "two posted receives share bytes, or a receive and a READ: the second message may overwrite \
         the first before the program reads it";
        "give each posted receive its own buffer";
    ReceiveWritten "receive_written":
        "the adapter owns a receive buffer until its completion is polled: a message may arrive \
         at any time, before or after the program's write";
        "poll the completion before you write to the buffer, or prepare the buffer before it is posted";
    ReceiveOverwritten "receive_overwritten":
        "a peer's WRITE or atomic changes bytes that a message or a response fills as well: which \
         of them the program reads depends on their order";
        "give peers the rkey of memory that no receive and no READ is posted for";
    ReadTargetWritten "read_target_written":
        "the adapter owns the target of a READ or an atomic until its completion is polled: the \
         response may arrive before or after the program's write";
        "poll the completion before you write to the buffer";
    FenceMissing "fence_missing":
        "a request starts before earlier READs and atomics are done: it sends the buffer's old \
         bytes, and a READ whose response is lost is repeated and fetches the bytes of a later \
         WRITE";
        "set IBV_SEND_FENCE on the later request (not inline), or poll the completion first; \
         between two queue pairs only polling helps";
    MemoryUnmapped "memory_unmapped":
        "the memory of a posted request is unmapped: hardware keeps its pages pinned and \
         transfers data that no process sees";
        "poll the completion, then ibv_dereg_mr, then free or unmap";
    RegionInUse "region_in_use":
        "posted requests use the region: they fail with IBV_WC_LOC_PROT_ERR unless they finish \
         first";
        "poll the completions, or destroy the queue pair, before ibv_dereg_mr";
    AddressHandleInUse "address_handle_in_use":
        "posted sends use the address handle: an adapter may read it when it executes them, and \
         its freed memory may hold another address";
        "poll the completions of the sends before ibv_destroy_ah";
    DeregisteredKey "deregistered_key":
        "a peer uses the key of a deregistered region, of one that has moved, or of a deallocated \
         or rebound window: the adapter refuses the access and both queue pairs fail, with \
         IBV_WC_REM_ACCESS_ERR at the peer";
        "wait for the peer to report that it is done before ibv_dereg_mr, ibv_rereg_mr or \
         ibv_dealloc_mw; memory registered again has a new rkey or address, and a bound window a \
         new rkey: send it to the peer";
    LkeyAsRkey "lkey_as_rkey":
        "a peer uses the lkey of a region: on some adapters it equals the rkey, on others the \
         request fails with IBV_WC_REM_ACCESS_ERR; checks make the two differ";
        "give the peer the region's rkey; lkey is for sg_list of this process";
    RequestUnreadable "request_unreadable":
        "next of a request points to unmapped memory: with other libraries the process crashes in \
         this call";
        "set next of each request, of the last one to NULL: memory of the stack or malloc is \
         uninitialized";
    BadWrNull "bad_wr_null":
        "bad_wr is null: with other libraries the call crashes when a post fails";
        "pass the address of a pointer; it names the first request that was not posted";
    CqOverrun "cq_overrun":
        "more requests are posted than the completion queue holds: if all complete before a poll, \
         it overflows and all of its queue pairs fail";
        "set cqe of ibv_create_cq to the signaled sends and receives posted at a time \
         (max_send_wr and max_recv_wr of all its queue pairs)";
    /// Advice: depends on the peers' sends.
    SharedQueueOverrun "shared_queue_overrun":
        "the shared receive queue and other posted requests exceed the completion queue: if peers \
         fill it before a poll, it overflows and all of its queue pairs fail";
        "advice, not a mistake if peers have credits: count max_wr of the shared receive queue, \
         or all credits, in cqe of ibv_create_cq";
    EachSignaled "each_request_signaled":
        "every request of a deep send queue is signaled: each costs a completion to write and \
         poll, although requests of one queue complete in order";
        "advice, not a mistake: set sq_sig_all = 0 and signal about every 16th request \
         (IBV_SEND_SIGNALED); its completion covers the earlier ones";
    NothingSignaled "nothing_signaled":
        "the send queue is full of unsignaled requests: polling a completion frees slots, and no \
         completion is due, so ibv_post_send always fails with ENOMEM";
        "signal at least one request in max_send_wr / 2 (IBV_SEND_SIGNALED), and poll its \
         completion";
    SendQueueFull "send_queue_full":
        "more than max_send_wr sends are posted, and the program posts again without a poll: \
         polling a completion frees slots, and adapters refuse this call with ENOMEM";
        "count posted sends and poll completions first, or raise cap.max_send_wr";
    CqEventsUnacknowledged "cq_events_unacknowledged":
        "ibv_destroy_cq blocks until all events that ibv_get_cq_event returned for the completion \
         queue are acknowledged";
        "call ibv_ack_cq_events for every event before ibv_destroy_cq";
    AsyncEventsUnacknowledged "async_events_unacknowledged":
        "destroying an object blocks until all events that ibv_get_async_event returned for it \
         are acknowledged";
        "call ibv_ack_async_event after every ibv_get_async_event";
    TooManyAcknowledged "too_many_acknowledged":
        "more events are acknowledged than were returned: libibverbs compares the counts, and \
         destroying the object blocks until they are equal";
        "acknowledge each event that ibv_get_cq_event or ibv_get_async_event returned exactly once";
    CmEventsUnacknowledged "cm_events_unacknowledged":
        "rdma_destroy_id and rdma_migrate_id block until all events that rdma_get_cm_event \
         returned for the id are acknowledged";
        "call rdma_ack_cm_event for every event before rdma_destroy_id; for a connection request, \
         the listener's rdma_destroy_id blocks";
    CmChannelInUse "cm_channel_in_use":
        "ids still use the destroyed event channel: later calls on them use its closed \
         descriptor, or another file that has reused the number";
        "call rdma_destroy_id for every id of the channel, then rdma_destroy_event_channel";
    EndlessWait "endless_wait":
        "a thread waits for an event or a completion, nothing in flight can cause it, and all other \
         threads wait as well";
        "arm the completion queue before each wait (ibv_req_notify_cq), then poll it, and wait on \
         its own channel; wait for events of rdma_cm on the id's channel; poll the queue pair's \
         send_cq for sends, its recv_cq for receives";
    BatchNotEnded "batch_not_ended":
        "a batch holds a lock from start to end: a thread that starts another one in between \
         waits, for ever if the batch is its own";
        "call ibv_wr_complete or ibv_wr_abort after each ibv_wr_start, and ibv_end_poll after \
         each ibv_start_poll that returned 0, also after ENOENT of ibv_next_poll and on early \
         exits";
    OutsideBatch "outside_batch":
        "the call belongs between start and end of a batch: outside, another thread may be at the \
         queue, and a completion's memory has a later one";
        "call ibv_wr_start before the requests and ibv_wr_complete; read a completion between \
         ibv_start_poll or ibv_next_poll and ibv_end_poll";
    FieldNotRequested "field_not_requested":
        "the completion queue was made without the member: with other libraries its function \
         pointer is null, and the call crashes";
        "set the member's IBV_WC_EX_WITH_ bit in wc_flags of ibv_create_cq_ex";
    UsedByTwoThreads "used_by_two_threads":
        "the program promised that one thread at a time uses the object: libraries take no lock, \
         and two threads change its state at once";
        "drop IBV_CREATE_CQ_ATTR_SINGLE_THREADED or the thread domain, or give each thread its \
         own queues";
    FailedCompletionRead "failed_completion_read":
        "a completion whose status is not IBV_WC_SUCCESS has only wr_id, status, qp_num and \
         vendor_err: other members are undefined";
        "check the status first, and look up the request by its wr_id";
    ForkNotPrepared "fork_not_prepared":
        "the process forks with registered memory and without ibv_fork_init: before Linux 5.12, \
         the parent's next write to a page goes to a copy, and the adapter keeps the old page";
        "call ibv_fork_init before the first ibv_reg_mr, or check ibv_is_fork_initialized; start \
         programs with posix_spawn";
    UsedInChild "used_in_child":
        "a forked child cannot use its parent's objects: the adapter uses the parent's memory, \
         which the child does not share, and destroying an object destroys the parent's";
        "open the device and make objects in each process after the fork; in a child, only close \
         the inherited device and channels";
    LostWakeUp "lost_wake_up":
        "a completion that arrives between the last ibv_poll_cq and ibv_req_notify_cq raises no \
         event: the program sleeps with the completion in the queue";
        "after ibv_req_notify_cq, poll until the queue is empty, then wait";
    ResetDiscarded "reset_discarded":
        "RESET discards the posted requests of a queue pair: they never complete, and a program \
         that polls for them never ends";
        "to flush requests, move to IBV_QPS_ERR, poll their completions, then move to \
         IBV_QPS_RESET";
    ArmedWithoutChannel "armed_without_channel":
        "the call succeeds and has no effect: a completion queue without a channel raises no \
         events, and a wait for one never ends";
        "pass a channel to ibv_create_cq (or ibv_create_cq_ex), or poll without ibv_req_notify_cq";
    ObjectAlive "object_alive":
        "objects exist at the end of the process: a long-running process that leaks them reaches \
         the device's limits";
        "destroy them, the newest first";
    UsedAfterDestroy "used_after_destroy":
        "the object is destroyed: with other libraries its memory is free, and the call crashes \
         or corrupts other data";
        "destroy an object once, after its last use";
    /// Advice: other threads or processes may act.
    EndlessPoll "endless_poll":
        "the queue stays empty: unsignaled requests have no completion unless they fail";
        "advice, not a mistake if you look for errors: set IBV_SEND_SIGNALED for the request, or \
         sq_sig_all";
    TimeoutZero "timeout_zero":
        "timeout is 0: the adapter waits for a response without limit, and one lost packet stalls \
         the queue pair without an error";
        "set timeout to about 14 (67 ms) in ibv_modify_qp to RTS";
    RetryZero "retry_zero":
        "retry_cnt is 0: one lost packet fails the queue pair with IBV_WC_RETRY_EXC_ERR";
        "set retry_cnt to 7 in ibv_modify_qp to RTS";
    RnrTimerZero "rnr_timer_zero":
        "min_rnr_timer is 0, the longest time, not the shortest: a sender that finds no receive \
         waits 655 ms";
        "set min_rnr_timer to about 12 (0.64 ms) in ibv_modify_qp to RTR";
    ReadsExceedPeer "reads_exceed_peer":
        "max_rd_atomic exceeds the peer's max_dest_rd_atomic: the peer refuses a READ or atomic \
         beyond it, and both queue pairs fail with IBV_WC_REM_INV_REQ_ERR";
        "exchange max_dest_rd_atomic with the peer, and set max_rd_atomic to at most that in \
         ibv_modify_qp to RTS";
}

impl Kind {
    pub(crate) const fn is_advice(self) -> bool {
        matches!(self, Self::EachSignaled | Self::SharedQueueOverrun | Self::EndlessPoll)
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
