//! Packet faults switched while devices are open.

use std::sync::{
    MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::{
    fabric::{
        Direction, FaultPlan, FaultSyntaxError, Faults, Rule,
        clause::{Counts, Tally},
    },
    sync::Mutex,
};

static ON: AtomicBool = AtomicBool::new(false);
/// Incremented with every change.
static GENERATION: AtomicU64 = AtomicU64::new(0);
static CLAUSES: Mutex<Vec<Clause>> = Mutex::new(Vec::new());

#[derive(Clone)]
struct Clause {
    number: u64,
    text: String,
    /// Shared by all links.
    tally: Tally,
}

/// Plan with counters, shared by a device's links in both directions.
#[derive(Clone, Default, Debug)]
pub(crate) struct CountedPlan {
    pub(crate) plan: FaultPlan,
    tallies: Vec<Tally>,
}

impl From<&FaultPlan> for CountedPlan {
    fn from(plan: &FaultPlan) -> Self {
        let tallies = plan.rules.iter().map(|_| Tally::default()).collect();
        Self { plan: plan.clone(), tallies }
    }
}

impl CountedPlan {
    fn rules(&self, direction: Direction) -> impl Iterator<Item = (&Rule, &Tally)> {
        let rules = self.plan.rules.iter().zip(&self.tallies);
        rules.filter(move |(rule, _)| rule.concerns(direction))
    }

    pub(crate) fn add_to(&self, faults: &mut Faults, direction: Direction) {
        for (rule, tally) in self.rules(direction) {
            faults.add_counted(rule.clone(), tally.clone());
        }
    }
}

/// Makes devices opened later follow the faults.
pub fn enable() {
    ON.store(true, Ordering::SeqCst);
}

/// True if faults can be switched.
#[must_use]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Adds clauses, each under its number.
///
/// # Errors
/// If they conflict with existing clauses; then nothing changes.
pub fn add(added: impl IntoIterator<Item = (u64, String)>) -> Result<(), FaultSyntaxError> {
    let mut clauses = CLAUSES.lock();
    let mut all = clauses.clone();
    let clause = |(number, text)| Clause { number, text, tally: Tally::default() };
    all.extend(added.into_iter().map(clause));
    plan(&all)?;
    replace(&mut clauses, all);
    Ok(())
}

/// Removes clauses that `keep` rejects, and dependent clauses.
pub fn retain(keep: impl Fn(u64) -> bool) {
    let mut clauses = CLAUSES.lock();
    let mut left: Vec<Clause> =
        clauses.iter().filter(|clause| keep(clause.number)).cloned().collect();
    while plan(&left).is_err() {
        left.pop();
    }
    replace(&mut clauses, left);
}

fn replace(clauses: &mut MutexGuard<'_, Vec<Clause>>, by: Vec<Clause>) {
    **clauses = by;
    GENERATION.fetch_add(1, Ordering::SeqCst);
}

/// Clauses with numbers, and counters of clauses for single packets.
#[must_use]
pub fn list() -> Vec<(u64, String, Option<Counts>)> {
    let clauses = CLAUSES.lock();
    clauses
        .iter()
        .map(|clause| {
            let counts = clause.plan().rules.first().map(|_| clause.tally.counts());
            (clause.number, clause.text.clone(), counts)
        })
        .collect()
}

impl Clause {
    fn plan(&self) -> FaultPlan {
        self.text.parse().unwrap_or_default()
    }
}

fn plan(clauses: &[Clause]) -> Result<FaultPlan, FaultSyntaxError> {
    let texts: Vec<&str> = clauses.iter().map(|clause| &*clause.text).collect();
    texts.join(", ").parse()
}

#[derive(Default)]
pub(crate) struct Follower {
    generation: u64,
}

impl Follower {
    /// Applies changes, behind the link's own rules.
    pub(crate) fn follow(&mut self, faults: &mut Faults, own: &CountedPlan, direction: Direction) {
        let generation = GENERATION.load(Ordering::Relaxed);
        if self.generation == generation {
            return;
        }
        self.generation = generation;
        let clauses = CLAUSES.lock().clone();
        let plan = plan(&clauses).unwrap_or_default().toward(direction);
        let conditions = if clauses.is_empty() { own.plan.conditions } else { plan.conditions };
        faults.set_conditions(conditions);
        faults.clear_rules();
        own.add_to(faults, direction);
        for clause in &clauses {
            for rule in clause.plan().toward(direction).rules {
                faults.add_counted(rule, clause.tally.clone());
            }
        }
    }
}
