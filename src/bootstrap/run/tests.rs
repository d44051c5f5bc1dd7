//! Runs the loop of `fetch` and `bootstrap` in random simulated worlds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::SystemTime;

use slotpress_base::NoProgress;
use slotpress_net::find::rank::Ranking;
use slotpress_net::{Candidate, Fetched, Offer};

use super::*;
use crate::bootstrap::next::tests::{FULL_BYTES, offer, selection};

#[path = "../../../tests/common/seeded_rng.rs"]
mod seeded_rng;
#[path = "../../../tests/common/worlds.rs"]
mod worlds;

use worlds::{Fate, RandomWorld};

/// Limit on started downloads, far above what any world needs: an archive can fail once alone and once with
/// each other archive, and the sources are asked again only a few times.
const BEGUN_MAX: usize = 1_000;

/// A slot that no chain has reached.
const INVENTED_SLOT: u64 = 1_000_000_000_000_000;

fn slot_of(day: usize) -> u64 {
    10 * (day as u64 + 1)
}

/// A world of sources and of archives on the node. One source may be honest.
struct SimulatedWorld {
    offers: Vec<Offer>,
    fates: BTreeMap<String, Fate>,
    /// Names of the archives that trusted servers confirm. A name identifies a state.
    confirmed: BTreeSet<String>,
    /// Places that have failed for good.
    failed: BTreeSet<String>,
    partials: Vec<(ArchiveName, u64)>,
    begun_downloads: usize,
    seed: u64,
}

impl SimulatedWorld {
    fn new(random_world: &RandomWorld, seed: u64) -> Self {
        let confirmed = BTreeSet::new();
        let failed = BTreeSet::new();
        let mut world = Self {
            offers: Vec::new(),
            fates: BTreeMap::new(),
            confirmed,
            failed,
            partials: Vec::new(),
            begun_downloads: 0,
            seed,
        };
        for held in &random_world.held {
            let mut offered = offer(held.server, held.base_day.map(slot_of), slot_of(held.day));
            if held.fate == Fate::Overstates && held.server.is_some() {
                offered.file_bytes = Some(1000 * FULL_BYTES);
            }
            if held.server.is_some() && held.server == random_world.honest {
                world.confirmed.insert(offered.name.to_string());
            }
            world.fates.insert(offered.location(), held.fate);
            world.offers.push(offered);
        }
        world
    }

    /// Reads the supplied archives. Notices wrong bytes only at the end.
    fn read(&self, supply: &mut dyn Supply) -> Result<u64> {
        let mut is_wrong = false;
        let mut slot = 0;
        while let Some(supplied) = supply.next()? {
            let SuppliedArchive::File(path) = supplied else { panic!("a simulated world has only files") };
            slot = ArchiveName::from_path(&path).expect("a name").slot;
            let fate = self.fates.get(&*path.to_string_lossy()).copied();
            is_wrong |= matches!(fate, None | Some(Fate::Lies | Fate::Renames | Fate::Invents));
        }
        if is_wrong { Err(Error::damaged("a lie")) } else { Ok(slot) }
    }

    /// Renames archives, or gives them slots that no chain has reached, as their servers do between two
    /// requests.
    fn change_names(&mut self) {
        let fates = &mut self.fates;
        for offered in &mut self.offers {
            let fate = fates[&offered.location()];
            let slots = match fate {
                Fate::Renames => 1,
                Fate::Invents if offered.name.slot < INVENTED_SLOT => INVENTED_SLOT,
                _ => continue,
            };
            let Some(server) = offered.source.strip_prefix("http://s").and_then(|name| name.split('.').next()) else {
                continue;
            };
            let server = server.parse().expect("a number");
            *offered = offer(Some(server), offered.name.base_slot, offered.name.slot + slots);
            fates.insert(offered.location(), fate);
        }
    }
}

impl World for SimulatedWorld {
    fn progress(&self) -> &dyn Progress {
        &NoProgress
    }

    fn prefer_local_file(&self, choice: ChosenArchive) -> ChosenArchive {
        choice
    }

    fn ask_sources(&mut self, selection: &mut Selection) -> Result<()> {
        self.change_names();
        selection.replace_offers(Selection {
            ranking: Ranking { offers: self.offers.clone(), ..selection.ranking.clone() },
            ..Selection::default()
        });
        Ok(())
    }

    fn find_incremental(&mut self, selection: &mut Selection, _: &ChosenArchive) -> Result<()> {
        selection.ranking.offers.retain(Offer::is_full);
        self.change_names();
        let fates = &self.fates;
        self.offers.retain(|offer| fates[&offer.location()] != Fate::Vanishes || offer.is_local());
        // Of full archives, only those that have appeared in the meantime matter.
        let is_new = |offer: &Offer| matches!(self.fates[&offer.location()], Fate::Renames | Fate::Invents);
        selection.add_offers(self.offers.iter().filter(|offer| !offer.is_full() || is_new(offer)).cloned());
        Ok(())
    }

    fn confirm(&mut self, choice: &ChosenArchive) -> FaultResult<()> {
        let is_in_doubt = self.fates[&choice.first_location()] == Fate::Unconfirmed;
        if is_in_doubt && !self.confirmed.contains(&choice.name.to_string()) {
            let error = Error::new(ErrorKind::Network, "no trusted server confirms it");
            return Err(ArchiveFault::new(FaultReason::Unconfirmed, error));
        }
        Ok(())
    }

    fn begin(&mut self, selection: &Selection, choice: &ChosenArchive) -> FaultResult<ObtainedArchive> {
        let place = choice.first_location();
        assert!(!self.failed.contains(&place), "seed {}: {place} is used again", self.seed);
        self.begun_downloads += 1;
        assert!(self.begun_downloads < BEGUN_MAX, "seed {}: the run does not end: {:?}", self.seed, self.fates);
        let is_local = choice.is_local();
        let reason = match self.fates.get_mut(&place).expect("a place") {
            Fate::NoRanges if is_local => Some(FaultReason::Unusable(Vec::new())),
            Fate::Replaced(times) if !is_local && *times > 0 => {
                *times -= 1;
                Some(FaultReason::Replaced)
            }
            Fate::Fails => Some(FaultReason::Unusable(Vec::new())),
            // The disk has no space for the stated length.
            Fate::Overstates if !is_local && selection.may_be_overstated(choice) => {
                Some(FaultReason::Unusable(Vec::new()))
            }
            Fate::Overstates if !is_local => None,
            _ => {
                if !is_local {
                    self.partials.push((choice.name.clone(), choice.file_bytes.unwrap_or(FULL_BYTES)));
                }
                let mut obtained = ObtainedArchive::new(choice);
                obtained.archive.path = Some(place.into());
                return Ok(obtained);
            }
        };
        if matches!(reason, Some(FaultReason::Unusable(_))) {
            self.failed.insert(place);
        }
        Err(Box::new(ArchiveFault { reason, error: Error::new(ErrorKind::Network, "why") }))
    }

    fn finish(&mut self, obtained: &mut ObtainedArchive) -> FaultResult<()> {
        if let Some((_, bytes)) = self.partials.iter().find(|(name, _)| *name == obtained.choice.name) {
            obtained.archive.fetched = Some(Fetched { file_bytes: *bytes, ..Fetched::default() });
        }
        Ok(())
    }

    fn list_partials(&self) -> Vec<(ArchiveName, u64)> {
        self.partials.clone()
    }

    fn remove_partial(&mut self, name: &ArchiveName) {
        self.partials.retain(|(kept, _)| kept != name);
    }
}

/// Asserts that each run ends, and never again uses a place that has failed for good. With an honest
/// source, the run must end with that source's state or a newer one. If it ends with an older state than
/// the best remaining candidate, it must report the state that it gave up.
fn assert_runs_end_with_best_state(seeds: impl Iterator<Item = u64>) {
    let mut states = 0;
    let mut errors = 0;
    let mut reported = 0;
    for seed in seeds {
        let random_world = RandomWorld::from_seed(seed);
        let honest = random_world.honest_day().map(slot_of);
        let mut world = SimulatedWorld::new(&random_world, seed);
        let mut selection = selection(world.offers.clone());
        let reader = SimulatedWorld::new(&random_world, seed);
        let finished = match run(&mut world, &mut selection, &|supply| reader.read(supply)) {
            Ok(finished) => finished,
            Err(error) => {
                assert!(
                    honest.is_none(),
                    "seed {seed}: an honest source has slot {honest:?}: {error}, {random_world:?}"
                );
                errors += 1;
                continue;
            }
        };
        states += 1;
        let slot = finished.result;
        let reports = finished.abandoned.is_some_and(|better| better.slot > slot);
        reported += u64::from(reports);
        let failed = &selection.node.failed;
        assert!(
            honest.is_none_or(|honest| slot >= honest),
            "seed {seed}: {slot}, not {honest:?}: {random_world:?}, {failed:?}"
        );
        // A full archive is paired with another server's incremental archive only if its own server
        // offers none. Such pairs may appear late, when a server loses its incremental archive, so they
        // are not compared. Lies that have appeared in the meantime, or that would take long to fetch, are
        // not compared either.
        let is_late_lie =
            |place: String| matches!(world.fates.get(&place), Some(Fate::Renames | Fate::Invents | Fate::Overstates));
        let is_compared = |candidate: &&Candidate| {
            let servers: BTreeSet<String> = candidate.remotes().map(|(_, remote)| remote.origin()).collect();
            servers.len() < 2 && !candidate.offers().any(|offer| is_late_lie(offer.location()))
        };
        let best = selection.candidates().iter().filter(is_compared).map(Candidate::slot).max().unwrap_or_default();
        assert!(
            reports || best <= slot,
            "seed {seed}: {slot}, although {best} is left: {random_world:?}, {failed:?}, {:?}",
            selection.repetitions
        );
    }
    println!("{states} states, {reported} of them after giving up a better one; {errors} errors");
}

#[test]
fn a_thousand_worlds_end_with_the_best_state() {
    // In the last world, the node has two full archives, and the older archive leads to the newest state.
    assert_runs_end_with_best_state((0..1_000).chain([8_468]));
}

#[test]
#[ignore = "takes a minute: for the nightly run"]
fn ten_thousand_worlds_end_with_the_best_state() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let first = number("WORLDS_FIRST", 0);
    let end = first + number("WORLDS", 10_000);
    println!("worlds {first} to {end}");
    assert_runs_end_with_best_state(first..end);
}

#[test]
fn a_rewritten_file_of_the_same_length_has_a_different_stat() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    fs::write(&path, "old").expect("written");
    let old = FileStat::read(&path).expect("a file");
    assert!(FileStat::read(&path) == Some(old));
    let file = fs::File::create(&path).expect("opened");
    std::io::Write::write_all(&mut &file, b"new").expect("written");
    file.set_modified(SystemTime::UNIX_EPOCH).expect("set");
    assert!(FileStat::read(&path) != Some(old));
}
