//! Makes a link with a bandwidth, a delay and a loss rate between two network namespaces, and transfers data over
//! the link. `bench/link.sh` and `bench/bootstrap.sh` use it, because not all kernels have `netem`.
//!
//! ```text
//! link_shaper shape TUN_A TUN_B BITS_PER_SECOND RTT_SECONDS LOSS
//! link_shaper serve ADDRESS:PORT CONGESTION_CONTROL <DATA     to the first client
//! link_shaper fetch ADDRESS:PORT >DATA
//! ```
//!
//! `shape` makes two TUN devices, which the caller moves into namespaces, and carries packets from each to the
//! other. At the given bandwidth, a packet leaves after those before it (each with the 38 bytes that Ethernet
//! adds), and arrives half a round trip later. A packet that would wait too long in the queue is dropped. So TCP
//! in the kernel sees a link like one of `tc netem rate delay loss`. Large segments pass whole, as they pass to
//! network cards (TSO), and count as the packets into which a card would cut them; with loss, the kernel cuts
//! them first.

use std::collections::VecDeque;
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Preamble (8), header and checksum (18), gap between packets (12).
const ETHERNET_BYTES: usize = 38;

/// Length of `struct virtio_net_hdr`, which precedes each packet.
const OFFLOAD_BYTES: usize = 10;

/// Length of an IP packet of 64 KiB and the header before it.
const PACKET_BYTES_MAX: usize = OFFLOAD_BYTES + 65_536;

/// Maximum time of a packet in the queue, in addition to a round trip. Queues of edge routers are often this long.
const QUEUE_SECONDS: f64 = 0.01;

const IFF_TUN: u16 = 0x0001;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
const TUN_F_CSUM: libc::c_ulong = 1;
const TUN_F_TSO4: libc::c_ulong = 2;
const GSO_NONE: u8 = 0;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["shape", a, b, bandwidth, rtt, loss] => {
            let shape =
                Shape { bits_per_second: bandwidth.parse()?, rtt_seconds: rtt.parse()?, loss_rate: loss.parse()? };
            shape.run(a, b)
        }
        ["serve", address, control] => serve(address, control),
        ["fetch", address] => fetch(address),
        _ => Err("usage: see the top of bench/link_shaper.rs".into()),
    }
}

fn serve(address: &str, control: &str) -> Result<()> {
    let listener = TcpListener::bind(address)?;
    // SAFETY: the option takes the name's bytes, which live until the call returns.
    let result = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            control.as_ptr().cast(),
            control.len() as libc::socklen_t,
        )
    };
    if result != 0 {
        return Err(format!("congestion control {control}: {}", io::Error::last_os_error()).into());
    }
    let (mut stream, _) = listener.accept()?;
    copy(&mut io::stdin().lock(), &mut stream)?;
    stream.shutdown(Shutdown::Write)?;
    // Wait until the other end has received all data.
    stream.read_to_end(&mut Vec::new())?;
    Ok(())
}

fn fetch(address: &str) -> Result<()> {
    const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
    let start = Instant::now();
    let mut stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(error) if start.elapsed() > CONNECT_TIME_MAX => return Err(error.into()),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    };
    copy(&mut stream, &mut io::stdout().lock())?;
    Ok(())
}

/// Copies in user space, as most programs do. `io::copy` would let the kernel copy.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    loop {
        match from.read(&mut buffer)? {
            0 => return to.flush(),
            length => to.write_all(&buffer[..length])?,
        }
    }
}

#[derive(Clone, Copy)]
struct Shape {
    bits_per_second: f64,
    rtt_seconds: f64,
    loss_rate: f64,
}

impl Shape {
    fn run(self, a: &str, b: &str) -> Result<()> {
        let (a, b) = (open(a, self.loss_rate == 0.0)?, open(b, self.loss_rate == 0.0)?);
        println!("ready");
        let directions = [(a.try_clone()?, b.try_clone()?, 1u64), (b, a, 2)];
        let threads: Vec<_> = directions
            .into_iter()
            .flat_map(|(from, to, seed)| {
                let queue = Arc::new(PacketQueue::default());
                let arrivals = queue.clone();
                [thread::spawn(move || self.send(from, &queue, seed)), thread::spawn(move || deliver(to, &arrivals))]
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")?;
        }
        Ok(())
    }

    /// Reads packets from the sender's kernel, and decides when each arrives.
    fn send(self, mut from: File, queue: &PacketQueue, seed: u64) {
        let delay = Duration::from_secs_f64(self.rtt_seconds / 2.0);
        let queue_time_max = Duration::from_secs_f64(self.rtt_seconds + QUEUE_SECONDS);
        let mut random = seed;
        // The time when all packets so far have left the sender.
        let mut departure = Instant::now();
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        loop {
            let Ok(length) = from.read(&mut buffer) else {
                // The device is not up yet.
                thread::sleep(Duration::from_millis(10));
                continue;
            };
            let packet = &buffer[..length];
            let now = Instant::now();
            departure = departure.max(now);
            if departure - now > queue_time_max || self.is_lost(&mut random) {
                continue;
            }
            departure += Duration::from_secs_f64(wire_bytes(packet) as f64 * 8.0 / self.bits_per_second);
            let mut packets = queue.packets.lock().unwrap_or_else(PoisonError::into_inner);
            packets.push_back((departure + delay, packet.to_vec()));
            queue.arrived.notify_one();
        }
    }

    fn is_lost(self, random: &mut u64) -> bool {
        // xorshift64: random enough to choose lost packets, and the same in every run.
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        ((*random >> 11) as f64) < self.loss_rate * (1u64 << 53) as f64
    }
}

/// Packets on their way, in the order in which they arrive. The maximum time in the queue limits their number.
#[derive(Default)]
struct PacketQueue {
    packets: Mutex<VecDeque<(Instant, Vec<u8>)>>,
    arrived: Condvar,
}

fn deliver(mut to: File, queue: &PacketQueue) {
    loop {
        let (arrival, packet) = {
            let mut packets = queue.packets.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                match packets.pop_front() {
                    Some(packet) => break packet,
                    None => packets = queue.arrived.wait(packets).unwrap_or_else(PoisonError::into_inner),
                }
            }
        };
        thread::sleep(arrival.saturating_duration_since(Instant::now()));
        // A packet that the kernel refuses counts as lost.
        let _ = to.write(&packet);
    }
}

/// Returns the bytes on the wire of a packet, or of the packets into which a large segment is cut.
fn wire_bytes(packet: &[u8]) -> usize {
    let (offload, ip) = packet.split_at(OFFLOAD_BYTES.min(packet.len()));
    let byte = |at: usize| usize::from(ip.get(at).copied().unwrap_or(0));
    let ip_header = (byte(0) & 0x0f) * 4;
    let headers = ip_header + (byte(ip_header + 12) >> 4) * 4;
    let segment = offload.get(4..6).map_or(0, |bytes| usize::from(u16::from_le_bytes([bytes[0], bytes[1]])));
    let is_single_packet = offload.get(1).is_none_or(|kind| *kind == GSO_NONE) || segment == 0;
    let packets = if is_single_packet { 1 } else { ip.len().saturating_sub(headers).div_ceil(segment).max(1) };
    ip.len() + (packets - 1) * headers + packets * ETHERNET_BYTES
}

/// Opens a TUN device of this name.
fn open(name: &str, accepts_large_segments: bool) -> Result<File> {
    let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    // `struct ifreq`: a name of 16 bytes, then flags.
    let mut request = [0u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[16..18].copy_from_slice(&(IFF_TUN | IFF_NO_PI | IFF_VNET_HDR).to_ne_bytes());
    // SAFETY: the request has the length of `struct ifreq`, and lives until the call returns.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, request.as_mut_ptr()) };
    if result != 0 {
        return Err(format!("cannot make the device {name}: {}", io::Error::last_os_error()).into());
    }
    let offload = if accepts_large_segments { TUN_F_CSUM | TUN_F_TSO4 } else { 0 };
    // SAFETY: the argument is a number.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD, offload) };
    if result != 0 {
        return Err(format!("cannot set up the device {name}: {}", io::Error::last_os_error()).into());
    }
    Ok(file)
}
