//! Archives that failed a check, with their sources: they are not used again in this run.

use slotpress_base::{Error, ErrorKind, Hint, one_line};
use slotpress_format::ArchiveName;
use slotpress_net::Offer;

/// Limit on the archives named in an error message.
const TOLD_MAX: usize = 8;

#[derive(Clone, Debug)]
pub struct Rejected {
    pub name: ArchiveName,
    /// Its source: a URL without secrets, or a path.
    pub place: String,
    /// True if it lies in the archives directory: then no archive of this name can be fetched there.
    pub is_in_place: bool,
    /// For an incremental archive, the source of the full one: either of the two may be the wrong one.
    pub full_place: Option<String>,
}

/// Archives that are not used again, each with the reason.
#[derive(Clone, Debug, Default)]
pub struct RejectedArchives(Vec<(Rejected, String)>);

impl RejectedArchives {
    pub fn add(&mut self, wrong: Rejected, why: &Error) {
        self.0.push((wrong, one_line(&why.to_string())));
    }

    /// True if an offer may be used; an incremental archive, on a full one from `full_place`.
    pub fn allows(&self, offer: &Offer, full_place: Option<&str>) -> bool {
        let place = offer.shown();
        !self.0.iter().any(|(wrong, _)| {
            let is_it = wrong.place == place || (wrong.is_in_place && wrong.name == offer.name);
            is_it && wrong.full_place.as_deref() == full_place
        })
    }

    /// Number of archives from this offer's server that were wrong, or may have been.
    pub fn faults_of(&self, offer: &Offer) -> usize {
        let Some(server) = server_of(&offer.shown()) else { return 0 };
        self.0.iter().filter(|(wrong, _)| server_of(&wrong.place).as_ref() == Some(&server)).count()
    }

    /// Error for when no archive is left: `last`, and the reasons for the others.
    pub fn nothing_left(&self, last: &Error) -> Error {
        let in_place = self.0.iter().find(|(wrong, _)| wrong.is_in_place);
        let hint = match in_place {
            _ if last.kind() == ErrorKind::Unsupported => last.hint().cloned().unwrap_or(Hint::ConvertFile),
            Some((wrong, _)) => format!("move {} away, so that another source's can be fetched", wrong.place).into(),
            None => "give other sources, or try again later".into(),
        };
        if self.0.len() < 2 {
            return last.clone().with_hint(hint);
        }
        let whys = self.0.iter().take(TOLD_MAX).map(|(wrong, why)| format!("{}: {why}", wrong.place));
        let more = if self.0.len() > TOLD_MAX { "; and others" } else { "" };
        let message = format!("no source is left: {}{more}", Vec::from_iter(whys).join("; "));
        Error::new(last.kind(), message).with_hint(hint)
    }
}

fn server_of(place: &str) -> Option<String> {
    slotpress_net::parse_url(place).ok().map(|url| url.origin().ascii_serialization())
}
