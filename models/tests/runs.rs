//! Rings of runs; weaker orderings break them.

use roce_models::{
    Weakening,
    runs::{a_reader_sleeps, a_thread_takes_what_another_sleeps_for, runs_go_around},
    weakened,
};

#[test]
fn a_sleeping_reader_is_woken() {
    a_reader_sleeps(true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_reader_that_does_not_look_again_sleeps_for_ever() {
    a_reader_sleeps(false);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_fences_a_reader_sleeps_for_ever() {
    weakened(Weakening::Fences, || a_reader_sleeps(true));
}

#[test]
fn a_sleeper_is_woken_whoever_takes_its_runs() {
    a_thread_takes_what_another_sleeps_for(true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_wakeup_that_is_cleared_and_not_restored_is_lost() {
    a_thread_takes_what_another_sleeps_for(false);
}

#[test]
fn runs_come_out_as_they_went_in() {
    runs_go_around();
}

#[test]
#[should_panic(expected = "torn")]
fn a_run_is_released() {
    weakened(Weakening::Release, || a_reader_sleeps(true));
}

#[test]
#[should_panic(expected = "torn")]
fn a_run_is_acquired() {
    weakened(Weakening::Acquire, || a_reader_sleeps(true));
}
