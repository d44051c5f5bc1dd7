//! `slotpress serve`, as clients and operators meet it: the program itself, on 127.0.0.1, with real
//! clients and hostile ones.

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
    mod lives;
}
