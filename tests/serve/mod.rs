//! `slotpress serve` as clients and operators see it. The program runs on 127.0.0.1, with real and hostile
//! clients.

mod works {
    mod clients;
    mod limits;
    mod page;
    mod proxied;
    mod tls;
}
mod refused {
    mod hostile;
}
mod survives {
    mod lifecycle;
}
