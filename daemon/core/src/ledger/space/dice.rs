//! Numbers that come as if by chance, from a seed that is given from outside.

/// The splitmix64 generator: small, fast, and the same numbers for the same seed.
#[derive(Clone, Debug)]
pub(in crate::ledger) struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `count`, each as likely as the others; 0 where there is none below.
    pub fn below(&mut self, count: u128) -> u128 {
        if let Ok(small) = u64::try_from(count) {
            return (u128::from(self.next()) * u128::from(small)) >> 64;
        }
        let wide = u128::from(self.next()) << 64 | u128::from(self.next());
        wide % count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_below_the_count_and_evenly_spread() {
        let mut dice = Dice::new(1);
        assert_eq!((dice.below(0), dice.below(1)), (0, 0));
        let mut seen = [0_u32; 10];
        for _ in 0..10_000 {
            seen[usize::try_from(dice.below(10)).unwrap()] += 1;
        }
        assert!(
            seen.iter().all(|times| (850..1_150).contains(times)),
            "{seen:?}"
        );
        let wide = u128::MAX / 3;
        assert!((0..100).all(|_| dice.below(wide) < wide));
        assert!((0..9).any(|_| dice.below(wide) > u128::from(u64::MAX)));
    }
}
