//! Sleep of an engine's threads; leaving out a step breaks it.

use roce_models::engine::{
    Omission,
    threads::{
        a_thread_that_serves_is_woken, a_thread_that_waits_on_the_sockets_is_woken,
        a_thread_with_an_event_loop_is_woken, a_thread_with_an_event_loop_on_the_sockets_is_woken,
        a_timer_fires, counters_are_published, requests_are_served_after_a_thread_that_served,
        requests_are_served_after_a_thread_that_waited, requests_are_served_after_an_event_loop,
        requests_are_served_beside_a_program_that_sleeps,
        requests_are_served_beside_an_event_loop_that_is_left, the_background_thread_ends,
        two_threads_of_which_one_serves_are_woken, two_threads_that_wait_on_the_sockets_are_woken,
        what_acknowledges_leaves, what_is_corked_leaves,
    },
    without,
};

#[test]
fn a_request_is_not_slept_through() {
    requests_are_served_beside_a_program_that_sleeps();
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_request_needs_a_ring_that_wakes() {
    without(Omission::Park, requests_are_served_beside_a_program_that_sleeps);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_request_needs_a_last_look() {
    without(Omission::Look, requests_are_served_beside_a_program_that_sleeps);
}

#[test]
fn a_timer_is_not_slept_through() {
    a_timer_fires();
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_timer_needs_a_wakeup() {
    without(Omission::Wakeup, a_timer_fires);
}

#[test]
fn counters_are_not_forgotten() {
    counters_are_published();
}

#[test]
#[should_panic(expected = "deadlock")]
fn counters_need_a_wakeup() {
    without(Omission::Wakeup, counters_are_published);
}

#[test]
fn a_waiting_thread_is_woken() {
    a_thread_that_waits_on_the_sockets_is_woken();
}

#[test]
fn a_thread_that_has_waited_leaves_the_sockets() {
    requests_are_served_after_a_thread_that_waited();
}

#[test]
fn waiting_threads_are_woken_whoever_takes_their_runs() {
    two_threads_that_wait_on_the_sockets_are_woken();
}

#[test]
fn a_serving_thread_is_woken() {
    a_thread_that_serves_is_woken();
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_serving_thread_that_sleeps_needs_a_ring_that_wakes() {
    without(Omission::Park, requests_are_served_after_a_thread_that_served);
}

#[test]
fn a_thread_that_has_served_leaves_the_sockets() {
    requests_are_served_after_a_thread_that_served();
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_thread_that_has_served_wakes_the_background_thread() {
    without(Omission::Wakeup, requests_are_served_after_a_thread_that_served);
}

#[test]
fn a_thread_is_woken_by_one_that_serves() {
    two_threads_of_which_one_serves_are_woken();
}

#[test]
fn an_event_loop_is_woken() {
    a_thread_with_an_event_loop_is_woken();
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_event_loop_needs_a_ring_that_wakes() {
    without(Omission::Park, a_thread_with_an_event_loop_is_woken);
}

#[test]
fn an_event_loop_on_the_sockets_is_woken() {
    a_thread_with_an_event_loop_on_the_sockets_is_woken();
}

#[test]
fn a_program_that_leaves_its_event_loop_is_served() {
    requests_are_served_beside_an_event_loop_that_is_left();
}

#[test]
fn a_program_that_ends_its_event_loop_is_served() {
    requests_are_served_after_an_event_loop();
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_event_loop_that_ends_wakes_the_background_thread() {
    without(Omission::Wakeup, requests_are_served_after_an_event_loop);
}

#[test]
fn what_waits_for_more_leaves() {
    what_is_corked_leaves();
}

#[test]
fn what_waits_for_a_response_leaves() {
    what_acknowledges_leaves();
}

#[test]
fn a_background_thread_ends() {
    the_background_thread_ends();
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_background_thread_ends_when_it_is_woken() {
    without(Omission::Wakeup, the_background_thread_ends);
}
