//! Bandwidths, delays and losses, as people write and read them.

use slotpress_base::quantity::significant;

/// A bandwidth in bit/s: `1Gbit`, `100Mbit/s`, `12.5MB/s`, `940Mbps`. A small b is a bit, a large B a byte; k, M, G
/// and T count in 1000, Ki, Mi, Gi and Ti in 1024.
pub fn parse_bandwidth(text: &str) -> Result<f64, String> {
    /// A pebibit per second: more is a typing error.
    const BITS_MAX: f64 = 1e15;
    const HINT: &str = "bandwidths look like 1Gbit, 100Mbit, 12.5MB/s";
    let (number, unit) = number_and_unit(text);
    let unit = unit.strip_suffix("/s").or(unit.strip_suffix("ps")).unwrap_or(unit);
    let bits_per_unit = match () {
        // 0 needs no unit.
        () if unit.is_empty() && number == Some(0.0) => Some(1.0),
        () if unit.len() >= 3 && unit.to_ascii_lowercase().ends_with("bit") => factor(&unit[..unit.len() - 3]),
        () if unit.ends_with('b') => factor(&unit[..unit.len() - 1]),
        () if unit.ends_with('B') => factor(&unit[..unit.len() - 1]).map(|factor| factor * 8.0),
        () => None,
    };
    let bits = number.zip(bits_per_unit).map(|(number, unit)| number * unit).ok_or(HINT)?;
    match bits {
        bits if bits.is_nan() || bits <= 0.0 => Err("the bandwidth must be above 0".to_string()),
        bits if bits > BITS_MAX => Err(format!("above any link; {HINT}")),
        bits => Ok(bits),
    }
}

/// A rate of a disk in bytes per second, written like a bandwidth: `1GB/s`, `500MiB/s`.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    parse_bandwidth(text).map(|bits| bits / 8.0).map_err(|error| {
        error.replace("bandwidths look like 1Gbit, 100Mbit, 12.5MB/s", "rates look like 1GB/s, 500MB/s")
    })
}

/// A round trip in seconds: `60ms`, `500us`, `0.06s`, `0`.
pub fn parse_rtt(text: &str) -> Result<f64, String> {
    /// Longer than to the moon and back.
    const SECONDS_MAX: f64 = 60.0;
    const HINT: &str = "round trips look like 60ms, 0.5ms, 0";
    let (number, unit) = number_and_unit(text);
    let number = number.ok_or(HINT)?;
    let seconds = match unit {
        "ms" => number / 1e3,
        "us" | "µs" => number / 1e6,
        "s" => number,
        "" if number == 0.0 => 0.0,
        _ => return Err(HINT.to_string()),
    };
    match (0.0..=SECONDS_MAX).contains(&seconds) {
        true => Ok(seconds),
        false => Err(format!("0 to {SECONDS_MAX} s; {HINT}")),
    }
}

/// A loss as a part of 1: `0.1%`, `0.001`, `0`.
pub fn parse_loss(text: &str) -> Result<f64, String> {
    const HINT: &str = "0 or more, and below 100 %; losses look like 0.1%, 0.001";
    let (number, unit) = number_and_unit(text);
    let loss = match (number, unit) {
        (Some(number), "%") => number / 100.0,
        (Some(number), "") => number,
        _ => return Err(HINT.to_string()),
    };
    if (0.0..1.0).contains(&loss) { Ok(loss) } else { Err(HINT.to_string()) }
}

/// A price: 0 or more, of any currency.
pub fn parse_price(text: &str) -> Result<f64, String> {
    /// More is a typing error.
    const PRICE_MAX: f64 = 1e6;
    match text.trim().parse::<f64>() {
        Ok(price) if (0.0..=PRICE_MAX).contains(&price) => Ok(price),
        _ => Err(format!("0 to {PRICE_MAX} per GB (10^9 bytes), as in 0.09")),
    }
}

/// A number, and the text behind it.
fn number_and_unit(text: &str) -> (Option<f64>, &str) {
    let text = text.trim();
    let is_number = |char: char| char.is_ascii_digit() || "+-.".contains(char);
    let end = text.find(|char| !is_number(char)).unwrap_or(text.len());
    (text[..end].parse().ok(), text[end..].trim())
}

/// The factor of a prefix.
fn factor(prefix: &str) -> Option<f64> {
    match prefix.to_ascii_lowercase().as_str() {
        "" => Some(1.0),
        "k" => Some(1e3),
        "m" => Some(1e6),
        "g" => Some(1e9),
        "t" => Some(1e12),
        "ki" => Some(1024.0),
        "mi" => Some(1024f64.powi(2)),
        "gi" => Some(1024f64.powi(3)),
        "ti" => Some(1024f64.powi(4)),
        _ => None,
    }
}

/// `410 Mbit/s`, `1.25 Gbit/s`: three digits.
pub fn show_bandwidth(bits_per_second: f64) -> String {
    // From 999.5 on, three digits are shown of the next unit.
    let (value, prefix) = match bits_per_second {
        bits if bits < 999.5 => (bits, ""),
        bits if bits < 999.5e3 => (bits / 1e3, "k"),
        bits if bits < 999.5e6 => (bits / 1e6, "M"),
        bits if bits < 999.5e9 => (bits / 1e9, "G"),
        bits => (bits / 1e12, "T"),
    };
    let number = significant(value);
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { &number };
    format!("{number} {prefix}bit/s")
}

/// `60 ms`, `0.5 ms`, `0 ms`.
pub fn show_rtt(seconds: f64) -> String {
    let text = format!("{:.3}", seconds * 1e3);
    format!("{} ms", text.trim_end_matches('0').trim_end_matches('.'))
}

/// `0.1 %`, `0 %`.
pub fn show_loss(loss: f64) -> String {
    let text = format!("{:.6}", loss * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bandwidths() {
        for (text, bits) in [
            ("1Gbit", 1e9),
            ("100Mbit", 1e8),
            ("100 mbit/s", 1e8),
            ("12.5MB/s", 1e8),
            ("12.5MBps", 1e8),
            ("940Mbps", 940e6),
            ("940Mb/s", 940e6),
            ("56kbit", 56e3),
            ("1MiB/s", 8.0 * 1048576.0),
            ("1000bit", 1e3),
        ] {
            assert_eq!(parse_bandwidth(text), Ok(bits), "{text}");
        }
        for text in
            ["", "0Gbit", "-1Gbit", "nan", "infGbit", "1e9", "1", "1Gbyte", "1G", "Gbit", "1Xbit", "9999Tbit", "1é"]
        {
            assert!(parse_bandwidth(text).is_err(), "{text}");
        }
        assert!(parse_bandwidth("0").is_err_and(|error| error.contains("above 0")));
        assert_eq!(parse_rate("1GB/s"), Ok(1e9));
        assert!(parse_rate("x").is_err_and(|error| error.contains("1GB/s")));
    }

    #[test]
    fn delays_losses_and_prices() {
        let rtts = ["60ms", "0", "0ms", "500us", "0.06s"].map(parse_rtt);
        assert_eq!(rtts, [Ok(0.06), Ok(0.0), Ok(0.0), Ok(0.0005), Ok(0.06)]);
        for text in ["", "60", "-1ms", "nan", "nanms", "1h", "61s", "ms"] {
            assert!(parse_rtt(text).is_err(), "{text}");
        }
        assert_eq!(["0.1%", "0.001", "0", "50 %"].map(parse_loss), [Ok(0.001), Ok(0.001), Ok(0.0), Ok(0.5)]);
        for text in ["", "100%", "1", "5", "-1%", "nan", "nan%", "%", "0.1ms"] {
            assert!(parse_loss(text).is_err(), "{text}");
        }
        assert_eq!(["0.09", "0"].map(parse_price), [Ok(0.09), Ok(0.0)]);
        for text in ["", "-1", "nan", "inf", "1e99", "x"] {
            assert!(parse_price(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shown() {
        let shown = [410.4e6, 1.25e9, 1e9, 999.6e6, 56e3, 12.0, 99.96e9].map(show_bandwidth);
        assert_eq!(shown, ["410 Mbit/s", "1.25 Gbit/s", "1 Gbit/s", "1 Gbit/s", "56 kbit/s", "12 bit/s", "100 Gbit/s"]);
        assert_eq!([0.06, 0.0, 0.0005].map(show_rtt), ["60 ms", "0 ms", "0.5 ms"]);
        assert_eq!([0.001, 0.0].map(show_loss), ["0.1 %", "0 %"]);
    }

    proptest! {
        #[test]
        fn hostile_text_never_panics(text in "[-+0-9.a-zA-Zµé%/ ]{0,12}") {
            let _ = (parse_bandwidth(&text), parse_rtt(&text), parse_loss(&text), parse_price(&text));
        }

        #[test]
        fn what_is_shown_can_be_read(log in 1.0f64..13.0) {
            let bits = 10f64.powf(log);
            let read = parse_bandwidth(&show_bandwidth(bits)).expect("a bandwidth");
            prop_assert!((read / bits - 1.0).abs() < 0.006);
        }
    }
}
