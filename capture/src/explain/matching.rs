//! Unique bipartite matching of rows to candidates.

use std::collections::{BTreeMap, BTreeSet};

type Rows = BTreeMap<usize, BTreeSet<usize>>;
/// Row by partner.
type Partners = BTreeMap<usize, usize>;

/// Rows with a single candidate that is no other's single one.
pub(super) fn only(rows: &Rows) -> Vec<(usize, usize)> {
    let mut claims: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (&row, candidates) in rows.iter().filter(|(_, candidates)| candidates.len() == 1) {
        for &candidate in candidates {
            claims.entry(candidate).or_default().push(row);
        }
    }
    claims.retain(|_, rows| rows.len() == 1);
    claims.into_iter().map(|(candidate, rows)| (rows[0], candidate)).collect()
}

/// Rows with the same partner in every matching; none if there are fewer partners than rows.
pub(super) fn certain(rows: &Rows) -> Vec<(usize, usize)> {
    let certain = only(rows);
    if !certain.is_empty() {
        return certain; // others may follow from these
    }
    let mut partners = Partners::new();
    let mut doubtful = BTreeSet::new();
    for &row in rows.keys() {
        let mut tried = BTreeSet::new();
        if !find(rows, row, None, &mut partners, &mut tried) {
            doubtful.insert(row);
        }
    }
    for row in doubtful.clone() {
        let mut tried = BTreeSet::new();
        find(rows, row, None, &mut partners, &mut tried);
        doubtful.extend(tried.iter().filter_map(|partner| partners.get(partner)));
    }
    let mut certain = Vec::new();
    for (&partner, &row) in &partners {
        let mut others = partners.clone();
        others.remove(&partner);
        let another = find(rows, row, Some(partner), &mut others, &mut BTreeSet::new());
        if !another && !doubtful.contains(&row) {
            certain.push((row, partner));
        }
    }
    certain
}

/// Finds a partner other than `not` for a row; may reassign other rows.
fn find(
    rows: &Rows,
    row: usize,
    not: Option<usize>,
    partners: &mut Partners,
    tried: &mut BTreeSet<usize>,
) -> bool {
    for &candidate in &rows[&row] {
        if Some(candidate) == not || !tried.insert(candidate) {
            continue;
        }
        let is_free = match partners.get(&candidate).copied() {
            Some(other) => find(rows, other, None, partners, tried),
            None => true,
        };
        if is_free {
            partners.insert(candidate, row);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[(usize, &[usize])]) -> Rows {
        rows.iter().map(|(row, its)| (*row, its.iter().copied().collect())).collect()
    }

    #[test]
    fn what_can_be_no_other() {
        assert_eq!(certain(&rows(&[(1, &[10]), (2, &[20])])), [(1, 10), (2, 20)]);
        // the first makes the second certain
        assert_eq!(certain(&rows(&[(1, &[10]), (2, &[10, 20])])), [(1, 10)]);
        assert_eq!(certain(&rows(&[(1, &[10, 20]), (2, &[10, 20])])), []);
        // two rows share two partners; the third takes the rest
        let three = [(1, &[10, 20][..]), (2, &[10, 20]), (3, &[10, 20, 30])];
        assert_eq!(certain(&rows(&three)), [(3, 30)]);
    }

    #[test]
    fn where_partners_are_missing_nothing_is_certain() {
        assert_eq!(certain(&rows(&[(1, &[10]), (2, &[10])])), []);
        let four: [(usize, &[usize]); 4] =
            [(1, &[10, 20]), (2, &[10, 20]), (3, &[10, 20]), (4, &[20, 30, 40])];
        assert_eq!(certain(&rows(&four)), []);
        // but elsewhere it is
        let two: [(usize, &[usize]); 5] =
            [(1, &[10]), (2, &[10]), (3, &[30, 40]), (4, &[30, 40]), (5, &[30, 40, 50])];
        assert_eq!(certain(&rows(&two)), [(5, 50)]);
    }
}
