/// Prime, so that packets of a message differ.
const PERIOD: usize = 251;

pub(crate) fn pattern(seed: usize, length: usize) -> Vec<u8> {
    let start = seed % PERIOD;
    (start..start + length).map(|n| (n % PERIOD) as u8).collect()
}
