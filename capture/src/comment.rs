use roce_transport::addr::Qpn;

/// Precedes the sender's QPN at a comment's end.
const FROM: &str = "from qp ";

/// Comment that names the sender's queue pair.
#[must_use]
pub fn with_sender(text: &str, sender: Qpn) -> String {
    format!("{text}; {FROM}{sender}")
}

pub(crate) fn sender(comment: &str) -> Option<Qpn> {
    let (_, number) = comment.rsplit_once("; ")?;
    let digits = number.strip_prefix(FROM)?.strip_prefix("0x")?;
    u32::from_str_radix(digits, 16).ok().filter(|number| *number < 1 << 24).map(Qpn::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_can_be_read_back() {
        let comment = with_sender("executed; and more", Qpn::new(0x12AB));
        assert_eq!(comment, "executed; and more; from qp 0x0012ab");
        assert_eq!(sender(&comment), Some(Qpn::new(0x12AB)));
        for other in [
            "executed",
            "from qp 0x12",
            "x; from qp 18",
            "x; from qp 0x1000000",
            "x; from qp 0x12 or so",
        ] {
            assert_eq!(sender(other), None, "{other}");
        }
    }
}
