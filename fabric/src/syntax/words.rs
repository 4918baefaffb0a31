//! Words of a clause, one after the other.

/// The words of a clause.
pub(super) struct Words<'a> {
    pub(super) words: Vec<&'a str>,
    pub(super) at: usize,
}

impl<'a> Words<'a> {
    pub(super) fn of(clause: &'a str) -> Self {
        Self { words: clause.split_whitespace().collect(), at: 0 }
    }

    pub(super) fn next(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at).copied()?;
        self.at += 1;
        Some(word)
    }

    /// The word after `what`.
    pub(super) fn value(&mut self, what: &str, example: &str) -> Result<&'a str, String> {
        self.next().ok_or_else(|| {
            format!("something is missing after \"{what}\"; write for example \"{example}\"")
        })
    }
}

/// Sets what may be said once in a clause.
pub(super) fn set<T>(slot: &mut Option<T>, value: T, what: &str) -> Result<(), String> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("there are two {what} in one clause; write two clauses")),
    }
}
