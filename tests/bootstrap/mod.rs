//! `slotpress bootstrap` against servers that are good, bad, slow, dead, or lie: real sockets, on this machine only.

mod works {
    mod firedancer;
    mod ledgers;
    mod servers;
    mod sources;
}
mod refused {
    mod disks;
    mod ledgers;
    mod sources;
}
mod survives {
    mod ledgers;
    mod panics;
    mod servers;
    mod serving;
    mod sources;
    mod swaps;
}
