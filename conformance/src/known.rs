//! Recorded verdicts on devices.

use std::collections::BTreeMap;

use crate::Verdict;

/// Records: a line with the device, then one per nonconforming case: verdict, colon, finding.
/// `tests/lab/run conform --pin` writes them.
const RECORDS: [&str; 2] =
    [include_str!("../known/rxe-6.1.txt"), include_str!("../known/rxe-6.12.txt")];

/// A device that the cases were played against.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// The device, such as `rxe of Linux 6.1.0-56-amd64`.
    pub device: &'static str,
    others: BTreeMap<&'static str, (Verdict, &'static str)>,
}

impl Known {
    /// Returns a case's verdict, and the finding if it does not conform.
    #[must_use]
    pub fn verdict(&self, case: &str) -> (Verdict, &'static str) {
        self.others.get(case).copied().unwrap_or((Verdict::Conforms, ""))
    }

    /// Returns the names of nonconforming cases.
    pub fn others(&self) -> impl Iterator<Item = &'static str> {
        self.others.keys().copied()
    }

    fn parse(text: &'static str) -> Option<Self> {
        let (device, rest) = text.split_once('\n')?;
        let read = |line: &'static str| {
            let (case, rest) = line.split_once(' ')?;
            let (verdict, found) = rest.split_once(": ").unwrap_or((rest, ""));
            Some((case, (Verdict::from_name(verdict)?, found)))
        };
        let others = rest.lines().map(read).collect::<Option<_>>()?;
        Some(Self { device, others })
    }
}

const REPORTED: &str = include_str!("../known/reported.txt");

/// A published behaviour of adapters, not measured by this project.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reported {
    /// Prefixes of the names of its cases.
    pub cases: Vec<&'static str>,
    /// The adapters.
    pub devices: &'static str,
    /// Their behaviour.
    pub text: &'static str,
    /// Publication.
    pub source: &'static str,
}

impl Reported {
    /// Returns true if it is about this case.
    #[must_use]
    pub fn is_about(&self, case: &str) -> bool {
        self.cases.iter().any(|begin| case.starts_with(begin))
    }

    fn parse(line: &'static str) -> Option<Self> {
        let [cases, devices, text, source] =
            line.split(" | ").collect::<Vec<_>>().try_into().ok()?;
        Some(Self { cases: cases.split_whitespace().collect(), devices, text, source })
    }
}

/// Returns published reports on untested adapters.
#[must_use]
pub fn reported() -> Vec<Reported> {
    let lines = REPORTED.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| Reported::parse(line).unwrap_or_else(|| unreachable!("a test reads it")))
        .collect()
}

/// Returns known devices, without this project's, which conforms.
#[must_use]
pub fn known() -> Vec<Known> {
    RECORDS
        .iter()
        .map(|text| Known::parse(text).unwrap_or_else(|| unreachable!("a test reads it")))
        .collect()
}
