//! `slotpress fetch` from servers that work, stall, break or lie: real sockets, on this machine only.

mod works {
    mod servers;
    mod sources;
}
mod refused {
    mod servers;
    mod slow_and_wrong;
}
mod survives {
    mod downloads;
    mod lies;
    mod servers;
}
