use std::collections::BTreeMap;

use crate::Verdict;

/// Each file: the device, then a line per nonconforming case. `tests/lab/run conform --pin` writes
/// them.
const RECORDS: [&str; 2] =
    [include_str!("../known/rxe-6.1.txt"), include_str!("../known/rxe-6.12.txt")];

/// Recorded verdicts on a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// Device, such as `rxe of Linux 6.1.0-56-amd64`.
    pub device: &'static str,
    others: BTreeMap<&'static str, (Verdict, &'static str)>,
}

impl Known {
    /// A case's verdict, and the finding if not conforming.
    #[must_use]
    pub fn verdict(&self, case: &str) -> (Verdict, &'static str) {
        self.others.get(case).copied().unwrap_or((Verdict::Conforms, ""))
    }

    /// Nonconforming cases.
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

/// Published behaviour of adapters, not measured by this project.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reported {
    /// Prefixes of case names.
    pub cases: Vec<&'static str>,
    /// Adapters.
    pub devices: &'static str,
    /// Behaviour.
    pub text: &'static str,
    /// Publication.
    pub source: &'static str,
}

impl Reported {
    /// True if the report is about this case.
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

/// Published reports on untested adapters.
#[must_use]
pub fn reported() -> Vec<Reported> {
    let lines = REPORTED.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| Reported::parse(line).expect("a test reads it")).collect()
}

/// Recorded devices, without this project's, which conforms.
#[must_use]
pub fn known() -> Vec<Known> {
    RECORDS.iter().map(|text| Known::parse(text).expect("a test reads it")).collect()
}
