//! Completion queues; weaker orderings break them.

use roce_models::{
    Weakening,
    completions::{
        Reader, a_completion_follows_its_data, an_armed_reader_sleeps, takers_meet_a_resize,
    },
    weakened,
};

#[test]
fn an_armed_reader_is_woken() {
    an_armed_reader_sleeps(Reader::PollsAgain);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_reader_that_does_not_poll_again_sleeps_for_ever() {
    an_armed_reader_sleeps(Reader::Careless);
}

#[test]
fn unless_the_queue_wakes_it() {
    an_armed_reader_sleeps(Reader::IsTold);
}

#[test]
fn or_does_so_for_what_is_solicited() {
    an_armed_reader_sleeps(Reader::IsToldOfSolicited);
}

#[test]
#[should_panic(expected = "deadlock")]
fn to_be_woken_takes_an_order() {
    weakened(Weakening::Sequential, || {
        an_armed_reader_sleeps(Reader::IsTold);
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn to_be_woken_for_what_is_solicited_takes_an_order() {
    weakened(Weakening::Sequential, || {
        an_armed_reader_sleeps(Reader::IsToldOfSolicited);
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn arming_is_sequentially_consistent() {
    weakened(Weakening::Sequential, || an_armed_reader_sleeps(Reader::PollsAgain));
}

#[test]
fn a_completion_shows_its_data() {
    a_completion_follows_its_data();
}

#[test]
#[should_panic(expected = "the data comes after its completion")]
fn a_completion_is_released() {
    weakened(Weakening::Release, a_completion_follows_its_data);
}

#[test]
#[should_panic(expected = "the data comes after its completion")]
fn a_completion_is_acquired() {
    weakened(Weakening::Acquire, a_completion_follows_its_data);
}

#[test]
fn takers_do_not_notice_a_resize() {
    takers_meet_a_resize();
}
