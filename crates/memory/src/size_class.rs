//! Size classes: eight to each doubling, so that rounding up to a class wastes less than an eighth.
//!
//! Counted in units; extents count in 16 bytes, page runs in pages. Up to eight units each count is a class; above, the
//! classes of `(8 << s, 16 << s]` units are the multiples of `1 << s`.

/// The smallest class that holds `units`, at least one.
pub(crate) fn holding(units: u32) -> usize {
    let before = units - 1;
    if before < 8 {
        return before as usize;
    }
    let shift = before.ilog2() - 3;
    (8 + shift * 8 + ((before >> shift) & 7)) as usize
}

/// The largest class that `units` fill, at least one.
pub(crate) fn filled_by(units: u32) -> usize {
    holding(units + 1) - 1
}

/// How many units a class holds.
pub(crate) const fn units(class: usize) -> u32 {
    if class < 8 {
        return class as u32 + 1;
    }
    ((class as u32 & 7) + 9) << step_shift(class)
}

/// All sizes of a class's doubling are multiples of `1 << step_shift` units.
pub(crate) const fn step_shift(class: usize) -> u32 {
    if class < 8 { 0 } else { (class as u32 - 8) / 8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_with_less_than_an_eighth_wasted() {
        for count in 1..100_000 {
            let class = holding(count);
            assert!(units(class) >= count && (class == 0 || units(class - 1) < count), "{count}");
            assert!((units(class) - count) * 8 < units(class), "{count}");
            let class = filled_by(count);
            assert!(units(class) <= count && units(class + 1) > count, "{count}");
            assert_eq!(units(class) % (1 << step_shift(class)), 0, "{count}");
        }
    }
}
