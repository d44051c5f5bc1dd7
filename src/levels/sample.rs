//! Draws a stratified sample of frames, and computes the error that sampling introduces.
//!
//! The frames of the tar stream are divided into equal, consecutive groups. From each group, a seeded
//! generator draws one frame of the sample. Every part of the stream (the bank file, old and new storages) is
//! therefore represented in proportion, and periodic content cannot coincide with the sample.
//!
//! The compressed size of the input is estimated as (whole content) x (compressed bytes of the
//! sample) / (content of the sample). The standard error follows from the differences between
//! neighboring frames of the sample (the successive difference estimator for one draw per group).
//! Differences between distant parts do not matter, because every part is represented.

use slotpress_base::random::mix;

/// Number of standard errors in the stated error: about 95 of 100 samples stay within it.
const STANDARD_ERRORS: f64 = 2.0;

/// Draws `sample_frames` of `total_frames` frames, one from each of as many equal groups, and returns their
/// indices in ascending order.
pub fn choose_frames(total_frames: u64, sample_frames: u64, seed: u64) -> Vec<u64> {
    let groups = sample_frames.min(total_frames);
    let start_of = |group: u64| (u128::from(group) * u128::from(total_frames) / u128::from(groups.max(1))) as u64;
    let mut indices = Vec::new();
    for group in 0..groups {
        let start = start_of(group);
        let end = start_of(group + 1);
        indices.push(start + mix(seed ^ mix(group)) % (end - start));
    }
    indices
}

#[derive(Clone, Copy, Debug, Default)]
pub struct FrameSizes {
    pub content_bytes: u64,
    pub compressed_bytes: u64,
}

/// Returns the error of the estimated size in percent; about 95 of 100 samples stay within it. `sample`
/// is in the order of the frames. Returns `None` for fewer than two frames, 0 if all are sampled.
pub fn size_error_percent(sample: &[FrameSizes], total_frames: u64) -> Option<f64> {
    if sample.len() as u64 >= total_frames {
        return Some(0.0);
    }
    if sample.len() < 2 {
        return None;
    }
    let count = sample.len() as f64;
    let content: f64 = sample.iter().map(|frame| frame.content_bytes as f64).sum();
    let compressed: f64 = sample.iter().map(|frame| frame.compressed_bytes as f64).sum();
    let ratio = compressed / content.max(1.0);
    let deviation = |frame: &FrameSizes| frame.compressed_bytes as f64 - ratio * frame.content_bytes as f64;
    let deviations: Vec<f64> = sample.iter().map(deviation).collect();
    let differences: f64 = deviations.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum();
    let variance = differences / (2.0 * (count - 1.0));
    let unsampled_part = 1.0 - count / total_frames as f64;
    let standard_error = (unsampled_part * variance / count).sqrt();
    Some(100.0 * STANDARD_ERRORS * standard_error / (compressed / count).max(1.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn one_frame_is_chosen_from_each_group(frames in 1u64..5000, sampled in 1u64..600, seed in any::<u64>()) {
            let chosen = choose_frames(frames, sampled, seed);
            let groups = sampled.min(frames);
            prop_assert_eq!(chosen.len() as u64, groups);
            for (frame, group) in chosen.iter().zip(0..) {
                prop_assert!((group * frames / groups..(group + 1) * frames / groups).contains(frame));
            }
        }

        #[test]
        fn errors_are_finite_and_not_negative(
            sizes in proptest::collection::vec((0u64..1 << 25, 0u64..1 << 25), 0..20),
        ) {
            let sample: Vec<FrameSizes> = sizes.into_iter().map(sizes_of).collect();
            let error = size_error_percent(&sample, 100);
            prop_assert_eq!(error.is_some(), sample.len() >= 2);
            prop_assert!(error.is_none_or(|error| error.is_finite() && error >= 0.0));
        }
    }

    fn sizes_of((content_bytes, compressed_bytes): (u64, u64)) -> FrameSizes {
        FrameSizes { content_bytes, compressed_bytes }
    }

    #[test]
    fn a_sample_of_all_frames_has_no_error() {
        assert_eq!(size_error_percent(&[(10, 5), (10, 3)].map(sizes_of), 2), Some(0.0));
    }

    #[test]
    fn the_stated_error_covers_95_of_100_samples() {
        let population: Vec<FrameSizes> = (0..4000u64)
            .map(|frame| {
                let base = if frame < 100 { 5_000_000 } else { 2_000_000 + frame * 100 };
                sizes_of((8 << 20, base + mix(frame) % 800_000))
            })
            .collect();
        let true_size: u64 = population.iter().map(|frame| frame.compressed_bytes).sum();
        let covered = (0..400)
            .filter(|seed| {
                let sample: Vec<_> =
                    choose_frames(4000, 80, *seed).iter().map(|frame| population[*frame as usize]).collect();
                let content: u64 = sample.iter().map(|frame| frame.content_bytes).sum();
                let compressed: u64 = sample.iter().map(|frame| frame.compressed_bytes).sum();
                let estimate = (4000 * (8u64 << 20)) as f64 * compressed as f64 / content as f64;
                let off_percent = 100.0 * (estimate / true_size as f64 - 1.0).abs();
                size_error_percent(&sample, 4000).is_some_and(|error| off_percent <= error)
            })
            .count();
        assert!((360..=400).contains(&covered), "{covered} of 400");
    }
}
