//! Known verdicts on devices, as records beside the cases.

use std::collections::BTreeMap;

use crate::Verdict;

/// Records: a line that names the device, then a line for each case that does not conform, with the
/// verdict and, behind a colon, what was found. `tests/lab/run conform --pin` writes them.
const RECORDS: [&str; 2] =
    [include_str!("../known/rxe-6.1.txt"), include_str!("../known/rxe-6.12.txt")];

/// A device against which the cases of this crate were played.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// The device, such as `rxe of Linux 6.1.0-56-amd64`.
    pub device: &'static str,
    /// Cases that do not conform: verdict, and what was found.
    others: BTreeMap<&'static str, (Verdict, &'static str)>,
}

impl Known {
    /// The verdict of a case, and what was found if it does not conform.
    #[must_use]
    pub fn verdict(&self, case: &str) -> (Verdict, &'static str) {
        self.others.get(case).copied().unwrap_or((Verdict::Conforms, ""))
    }

    /// Names of the cases that do not conform.
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

/// Published reports on adapters.
const REPORTED: &str = include_str!("../known/reported.txt");

/// Something that was published of adapters. This project has not measured it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reported {
    /// Cases that it is about: each begins with one of these.
    pub cases: Vec<&'static str>,
    /// The adapters.
    pub devices: &'static str,
    /// Their behaviour.
    pub text: &'static str,
    /// Where it was published.
    pub source: &'static str,
}

impl Reported {
    /// True if it is about this case.
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

/// Published reports on adapters that this project has not tried.
#[must_use]
pub fn reported() -> Vec<Reported> {
    let lines = REPORTED.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| Reported::parse(line).unwrap_or_else(|| unreachable!("a test reads it")))
        .collect()
}

/// The devices whose behaviour is known, this project's aside, which conforms.
#[must_use]
pub fn known() -> Vec<Known> {
    RECORDS
        .iter()
        .map(|text| Known::parse(text).unwrap_or_else(|| unreachable!("a test reads it")))
        .collect()
}
