//! Deterministic pseudorandom numbers (SplitMix64), for benchmark data and generated tests.
//!
//! In: a seed. Out: the 64-bit outputs of SplitMix64 (Steele, Lea and Flood, "Fast splittable
//! pseudorandom number generators", OOPSLA 2014, figure 13), and values derived from them. Not
//! suitable for cryptography.

/// A generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Seeds the generator. Seeds that differ by multiples of SplitMix64's increment yield shifted
    /// copies of one stream.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next output, uniform over all 64-bit values.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0..n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.word() % n.max(1) as u64) as usize
    }

    /// True with a probability of `percent` / 100.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A random element of a list.
    ///
    /// # Panics
    /// If the list is empty.
    pub fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }

    /// Uniform in [0, 1), a multiple of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// The first outputs of the reference implementation (Vigna, `splitmix64.c`) with state
    /// 1234567, as published with other implementations.
    #[test]
    fn words_are_those_of_the_reference() {
        let mut random = Random::new(1_234_567);
        let words: Vec<u64> = (0..5).map(|_| random.word()).collect();
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(words, published);
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut random = Random::new(1);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[random.below(5)] += 1;
            assert!((0.0..1.0).contains(&random.unit()));
        }
        assert!(seen.iter().all(|n| *n > 100), "{seen:?}");
        assert_eq!(random.below(0), 0);
        assert!(random.chance(100) && !random.chance(0));
    }
}
