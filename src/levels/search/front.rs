//! The Pareto front: of points with a size and a cost, those that no other beats in both. Pure.

/// Whether one point beats another: no worse in both, and better in one.
#[cfg(test)]
pub fn beats(one: (f64, f64), other: (f64, f64)) -> bool {
    one.0 <= other.0 && one.1 <= other.1 && (one.0 < other.0 || one.1 < other.1)
}

/// Which of the points (size, cost) no other beats, by ascending cost; of equal ones, the first.
pub fn front(points: &[(f64, f64)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|a, b| {
        let (a, b) = (points[*a], points[*b]);
        a.1.total_cmp(&b.1).then(a.0.total_cmp(&b.0))
    });
    let mut best_size = f64::INFINITY;
    order.retain(|at| {
        let is_better = points[*at].0 < best_size;
        best_size = best_size.min(points[*at].0);
        is_better
    });
    order
}

#[cfg(test)]
mod tests {
    use {super::*, proptest::prelude::*};

    proptest! {
        /// No point of the front is beaten; every other point is beaten by one of the front, or equals one.
        #[test]
        fn the_front_is_what_nothing_beats(points in proptest::collection::vec((0u8..20, 0u8..20), 0..40)) {
            let points: Vec<(f64, f64)> = points.iter().map(|(size, cost)| (f64::from(*size), f64::from(*cost))).collect();
            let on = front(&points);
            prop_assert_eq!(on.is_empty(), points.is_empty());
            for (at, point) in points.iter().enumerate() {
                let is_beaten = points.iter().any(|other| beats(*other, *point));
                if on.contains(&at) {
                    prop_assert!(!is_beaten);
                } else {
                    prop_assert!(on.iter().any(|best| beats(points[*best], *point) || points[*best] == *point));
                }
            }
        }
    }
}
