//! Devices that break one rule each; the rule's case finds them.

mod connecting;
mod device;
mod limits;
mod memory;
mod requester;
mod responder;
mod wire;

use std::collections::BTreeSet;

use roce_conformance::{Case, Runner, Simulated, Subject, Verdict, chapters};

use device::{Fault, Mutant};

/// Name, case that must find the fault, fault.
type Row = (&'static str, &'static str, Fault);

/// Fields of a RETH.
const ADDRESS: std::ops::Range<usize> = 12..20;
const KEY: std::ops::Range<usize> = 20..24;
const LENGTH: std::ops::Range<usize> = 24..28;

fn has_reth(packet: &[u8]) -> bool {
    [0x06, 0x0A, 0x0B, 0x0C].contains(&packet[0]) && packet.len() >= 32
}

fn address(packet: &[u8]) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|at| packet[ADDRESS.start + at]))
}

fn all() -> impl Iterator<Item = Row> {
    let connecting = [connecting::responses(), connecting::checks(), connecting::packets()];
    let packets = [wire::wire(), responder::responder()];
    let requests = [requester::requester(), requester::recovery()];
    let others = [limits::limits(), limits::pauses(), memory::windows(), memory::placement()];
    packets.into_iter().chain(requests).chain(others).chain(connecting).flatten()
}

fn cases() -> Vec<Case> {
    chapters().into_iter().flat_map(|chapter| chapter.cases).collect()
}

/// Nonconforming cases.
fn found<S: Subject>(subject: &mut S, cases: &[Case]) -> BTreeSet<String> {
    let mut runner = Runner::new(subject);
    let wrong = cases.iter().filter(|case| {
        let outcome = runner.run(case);
        // Without a connection most cases say nothing.
        let is_possible = outcome.verdict != Verdict::Inconclusive;
        assert!(is_possible || case.is_by_cm(), "{}: {outcome:?}", case.name);
        is_possible && outcome.verdict != Verdict::Conforms
    });
    wrong.map(|case| case.name.clone()).collect()
}

#[test]
fn each_mutant_is_found_by_the_case_that_is_for_it() {
    // With an agent a mutant knows its queue pair.
    let (without_agent, with_agent): (Vec<_>, _) = cases().into_iter().partition(Case::is_by_cm);
    let mut text = String::new();
    for (name, by, fault) in all() {
        let is_by_cm = without_agent.iter().any(|case| case.name == by);
        let cases = if is_by_cm { &without_agent } else { &with_agent };
        let found = found(&mut Mutant::new(&fault), cases);
        if !found.contains(by) {
            text += &format!("a device that {name} is not found by {by}, but by {found:?}\n");
        }
        println!("{name}: {} cases", found.len());
    }
    assert!(text.is_empty(), "\n{text}");
}

#[test]
fn there_are_sixty() {
    let names: BTreeSet<_> = all().map(|(name, ..)| name).collect();
    assert!(names.len() >= 60, "{}", names.len());
}

#[test]
fn a_mutant_without_a_fault_conforms() {
    let fault = Fault::Complete(|_| true);
    assert_eq!(found(&mut Mutant::new(&fault), &cases()), BTreeSet::new());
    assert_eq!(found(&mut Simulated::default(), &cases()), BTreeSet::new());
}
