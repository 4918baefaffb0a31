use roce_transport::psn::Psn;

/// PSN counted from `first`, near `end`.
pub(super) fn unwrapped(psn: Psn, first: Psn, end: i64) -> i64 {
    let near = first.plus((end & 0xFF_FFFF) as u32);
    match psn.after(near) {
        Some(ahead) => end + i64::from(ahead),
        None => end - i64::from(near.after(psn).unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_goes_on_beyond_the_wrap() {
        let first = Psn::new(0xFF_FFFE);
        let of = |psn, end| unwrapped(Psn::new(psn), first, end);
        assert_eq!([of(0xFF_FFFE, 0), of(1, 0), of(0xFF_FFF0, 0)], [0, 3, -14]);
        let round = 1 << 24;
        assert_eq!(
            [of(0xFF_FFFE, round), of(1, round + 2), of(0, round)],
            [round, round + 3, round + 2]
        );
        assert_eq!(of(5, round + 100), round + 7);
    }
}
