//! Random worlds for `bootstrap`: sources, of which one may be honest, and full archives of the node.
//! Simulations of `bootstrap` run in all of them without a network, and the program itself in some.

use super::seeded_rng::SeededRng;

/// Number of days of a chain that have archives. The first `FULL_DAYS` have full archives.
pub const DAYS: usize = 5;
pub const FULL_DAYS: usize = 3;

/// What happens when an archive is requested from a server or the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Arrives,
    /// The archive arrives slowly.
    Slow,
    /// Connections end in the middle.
    Breaks,
    /// All bytes arrive, and their content is wrong.
    Lies,
    Fails,
    NoRanges,
    /// The archive is replaced this number of times during the fetch.
    Replaced(usize),
    /// No trusted server has the archive, unless an honest source has it too.
    Unconfirmed,
    /// The archive is gone when the sources are asked again.
    Vanishes,
    /// The archive has a later slot each time the sources are asked again, and its content is wrong.
    Renames,
    /// The same as `Renames`, with a slot that no chain has reached.
    Invents,
    /// The source states a length for which no disk has space.
    Overstates,
}

/// An archive that a server or the node has.
#[derive(Clone, Copy, Debug)]
pub struct HeldArchive {
    /// Number of the server, or `None` for a file of the node.
    pub server: Option<usize>,
    pub base_day: Option<usize>,
    pub day: usize,
    pub fate: Fate,
}

#[derive(Debug)]
pub struct RandomWorld {
    /// Number of the honest server.
    pub honest: Option<usize>,
    pub held: Vec<HeldArchive>,
}

impl RandomWorld {
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let servers = 1 + rng.below(5);
        let honest = (rng.below(4) > 0).then(|| rng.below(servers));
        let mut world = Self { honest, held: Vec::new() };
        for server in 0..servers {
            for _ in 0..=rng.below(2) {
                let full_day = rng.below(FULL_DAYS);
                world.add(Some(server), None, full_day, &mut rng);
                for _ in 0..rng.below(3) {
                    let day = full_day + 1 + rng.below(DAYS - full_day - 1);
                    world.add(Some(server), Some(full_day), day, &mut rng);
                }
            }
        }
        for _ in 0..rng.below(3) {
            let full_day = rng.below(FULL_DAYS);
            world.add(None, None, full_day, &mut rng);
        }
        world
    }

    fn add(&mut self, server: Option<usize>, base_day: Option<usize>, day: usize, rng: &mut SeededRng) {
        let is_same = |held: &HeldArchive| (held.server, held.base_day, held.day) == (server, base_day, day);
        if self.held.iter().any(is_same) {
            return;
        }
        let fate = match rng.below(14) {
            _ if server.is_some() && server == self.honest => Fate::Arrives,
            0 | 1 => Fate::Lies,
            2 | 3 => Fate::Fails,
            4 => Fate::NoRanges,
            5 => Fate::Replaced(rng.below(12)),
            6 => Fate::Unconfirmed,
            7 => Fate::Vanishes,
            8 => Fate::Slow,
            9 => Fate::Breaks,
            10 => Fate::Renames,
            11 => Fate::Invents,
            12 => Fate::Overstates,
            _ => Fate::Arrives,
        };
        self.held.push(HeldArchive { server, base_day, day, fate });
    }

    /// Returns the day of the newest state of the honest source.
    pub fn honest_day(&self) -> Option<usize> {
        let honest = self.held.iter().filter(|held| held.server.is_some() && held.server == self.honest);
        honest.map(|held| held.day).max()
    }
}
