//! Injected faults of packets, calls and devices. The guide has the grammar.

mod call_rule;
mod calls;
mod device_rule;
pub mod devices;
pub mod live;

use std::str::FromStr;

pub use call_rule::{CallEffect, CallFaults, CallRule, error_of};
pub use calls::{CallId, Failing, Failure};
pub use device_rule::{DeviceRule, Incident};

use device_rule::Parsed;

use crate::fabric::{
    FaultPlan, FaultSyntaxError,
    clause::{Words, clauses},
};

/// All rules of a text.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FaultRules {
    /// For packets.
    pub packets: FaultPlan,
    /// `packets` as text, by clause.
    pub packet_clauses: Vec<String>,
    /// For calls of the C interface, in order of trial.
    pub calls: Vec<(String, CallRule)>,
    /// For devices.
    pub devices: Vec<(String, DeviceRule)>,
}

impl FromStr for FaultRules {
    type Err = FaultSyntaxError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut rules = Self::default();
        for clause in clauses(text) {
            let words = Words::of(clause);
            let first = words.peek().unwrap_or_default();
            let wrong = |problem| FaultSyntaxError::new(clause, problem);
            if CallRule::WORDS.contains(&first) {
                rules.calls.push((in_one_line(clause), CallRule::parse(words).map_err(wrong)?));
            } else if DeviceRule::WORDS.contains(&first) {
                match DeviceRule::parse(words).map_err(wrong)? {
                    Parsed::Rule(rule) => rules.devices.push((in_one_line(clause), rule)),
                    Parsed::Packets(clause) => rules.packet_clauses.push(clause),
                }
            } else if FaultPlan::WORDS.contains(&first) {
                rules.packet_clauses.push(in_one_line(clause));
            } else {
                return Err(wrong(format!(
                    "unknown action \"{first}\"; expected {}, {}, fail, slow or hang",
                    FaultPlan::WORDS.join(", "),
                    DeviceRule::WORDS.join(", ")
                )));
            }
        }
        rules.packets = rules.packet_clauses.join(", ").parse()?;
        Ok(rules)
    }
}

fn in_one_line(clause: &str) -> String {
    clause.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_for_packets_and_for_calls_stand_in_one_text() {
        let rules: FaultRules =
            "rate 1gbit; fail  create_cq nth 2 ENOMEM, drop 1%, queue 64kb".parse().unwrap();
        assert_eq!(rules.packets, "rate 1gbit, drop 1%, queue 64kb".parse().unwrap());
        assert_eq!(rules.calls.len(), 1);
        assert_eq!(rules.calls[0].0, "fail create_cq nth 2 ENOMEM");
        assert_eq!("".parse(), Ok(FaultRules::default()));
    }

    #[test]
    fn mistakes_show_the_word_and_what_could_stand_there() {
        for (text, wrong, hint) in [
            ("fail", "\"fail\" needs a value", "fail create_cq nth 2 ENOMEM"),
            ("fail creat_cq", "\"creat_cq\"", "expected create_cq"),
            ("fail connekt", "\"connekt\"", "rdma_connect"),
            ("fail create_cq ENOMOM", "\"ENOMOM\"", "EINVAL, ENOMEM"),
            ("fail create_cq sometimes", "\"sometimes\"", "every N, nth N"),
            ("fail create_cq 3", "\"3%\"", "every 3"),
            ("fail create_cq nth 0", "\"0\"", "nth 3"),
            ("fail create_cq EIO EIO", "two errors", "two clauses"),
            ("fail create_cq 101%", "\"101%\"", "0% to 100%"),
            ("slow qp", "no time is given", "by 10ms"),
            ("slow qp by 10", "\"10\"", "\"2ms\""),
            ("slow qp EIO", "\"EIO\"", "by TIME"),
            ("hang poll_cq 20", "write \"20%\"", "every 20"),
            ("hang poll_cq 20m", "\"20m\"", "\"2ms\""),
            ("complete 3%", "\"3%\"", "send or recv"),
            ("complete send once", "no status is given", "RETRY_EXC_ERR"),
            ("complete send with NO_ERR", "\"NO_ERR\"", "REM_ACCESS_ERR"),
            ("complete recv with RETRY_EXC_ERR", "not a status of this queue", "LOC_LEN_ERR"),
            ("complete recv with", "\"with\" needs a value", "nth 5"),
            ("qp 0x12 dead", "\"dead\"", "\"fatal\""),
            ("qp many fatal", "\"many\"", "qp 0x12"),
            ("port down at 1", "\"1\"", "\"1s\""),
            ("port up", "\"up\"", "\"down\""),
            ("gid change for 1s", "\"for\"", "at 1s"),
            ("device fatal soon", "\"soon\"", "at 3s"),
            ("cm reject first", "\"first\"", "nth N"),
            ("cm drop everything", "\"everything\"", "connect, accept"),
            ("cm lose", "\"lose\"", "cm reject"),
            ("explode 3%", "\"explode\"", "fail, slow or hang"),
            ("drop 3", "write \"3%\"", "every 3"),
        ] {
            let error = text.parse::<FaultRules>().unwrap_err().to_string();
            let is_whole = error.contains(wrong) && error.contains(hint) && error.contains(text);
            assert!(is_whole && error.lines().count() == 1, "{text}: {error}");
        }
    }
}
