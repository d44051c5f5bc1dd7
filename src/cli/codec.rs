//! The flags, and the words, of how archives are compressed: shared by every command that writes one.

use {
    super::{ui::Ui, values},
    crate::{
        archive::{
            encode::{Codec, Format, ZSTD_LEVEL_DEFAULT},
            writer::FrameTotals,
        },
        error::{Error, Result},
        progress::Progress,
    },
    clap::{Args, ValueEnum},
    std::{io::IsTerminal, path::Path},
};

/// How frames are compressed: flags of every command that writes archives.
#[derive(Debug, Args)]
pub struct CodecArgs {
    /// The zstd level: 1 to 22, or negative for less and faster; `slotpress levels` helps to choose
    #[arg(long, value_name = "N", default_value_t = ZSTD_LEVEL_DEFAULT, value_parser = values::zstd_level,
          allow_negative_numbers = true)]
    zstd_level: i32,
    /// zstd for .tar.zst; lz4 for .tar.lz4, which Firedancer does not read; none for a plain .tar, which Agave does not
    /// read
    #[arg(long, value_enum, default_value_t)]
    format: FormatArg,
    /// Bytes of tar in one zstd frame, 64KiB to 32MiB
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = values::size)]
    pub frame_size: u64,
    /// Leave out the checksum of each frame
    #[arg(long)]
    no_checksum: bool,
    /// Store a frame raw when compressing it saves less than this, in percent; 0 compresses every frame
    #[arg(long, value_name = "PCT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=99))]
    min_savings: u8,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum FormatArg {
    #[default]
    Zstd,
    Lz4,
    None,
}

impl CodecArgs {
    /// The codec that the flags ask for; warns of formats that not every client reads.
    pub fn codec(&self, ui: &Ui) -> Codec {
        let format = match self.format {
            FormatArg::Zstd => Format::Zstd { level: self.zstd_level },
            FormatArg::Lz4 => {
                ui.warn(".tar.lz4: Agave reads it, Firedancer does not");
                Format::Lz4
            }
            FormatArg::None => {
                ui.warn("a plain .tar: Firedancer reads it, Agave does not");
                Format::None
            }
        };
        Codec { format, has_checksum: !self.no_checksum, min_savings_percent: self.min_savings }
    }
}

/// How a codec is called in JSON, and its level.
pub fn format_and_level(codec: &Codec) -> (&'static str, Option<i32>) {
    match codec.format {
        Format::Zstd { level } => ("zstd", Some(level)),
        Format::Lz4 => ("lz4", None),
        Format::None => ("none", None),
    }
}

/// How a codec and what it made are called for people.
pub fn show_codec(codec: &Codec, frames: &FrameTotals) -> String {
    let codec = match codec.format {
        Format::Zstd { level } => format!("zstd level {level}"),
        Format::Lz4 => "lz4".to_string(),
        Format::None => "plain tar".to_string(),
    };
    let stored = match frames.stored_frames {
        0 => String::new(),
        stored => format!(" ({} stored raw)", values::show_count(stored)),
    };
    format!("{codec}, {}{stored}", values::count_of(frames.frames, "frame"))
}

/// Whether the archive goes to standard output, which must then not be a terminal.
pub fn is_stdout(output: &Path, ui: &Ui) -> Result<bool> {
    if output.as_os_str() != "-" {
        return Ok(false);
    }
    if std::io::stdout().is_terminal() {
        return Err(Error::usage("an archive does not belong on a terminal").hint("pipe it into a program or a file"));
    }
    ui.keep_stdout_for_data();
    Ok(true)
}
