//! The flags, and the words, of how archives are compressed: shared by every command that writes one.

use std::io::IsTerminal;
use std::path::Path;

use clap::{Args, ValueEnum};
use slotpress::codec::{Effort, Format, FrameTotals, PRESET_SMALL, ZSTD_LEVEL_DEFAULT, ZstdParams};
use slotpress::rules::readers_in_words;
use slotpress::{Codec, Error, Progress, RecordLayout, Result};

use super::ui::Ui;
use super::values;

/// How frames are compressed: flags of every command that writes archives.
#[derive(Debug, Args)]
pub struct CodecArgs {
    /// zstd level: 1 to 22, or negative for faster and larger; `slotpress levels` helps to choose [default: 1]
    #[arg(long, value_name = "N", value_parser = values::zstd_level, allow_negative_numbers = true)]
    zstd_level: Option<i32>,
    /// For account storages: fast and balanced compare records with earlier ones of their kind (smaller than level 1; fast
    /// mostly takes less time; balanced is for --layout clustered), small (smallest, slow)
    #[arg(long, value_enum, conflicts_with = "zstd_level")]
    preset: Option<PresetArg>,
    /// Advanced zstd parameters, on top of the level or preset, named as by `zstd --zstd=`: wlog=21,strat=fast
    #[arg(long, value_name = "NAME=N,…")]
    zstd_params: Option<String>,
    /// Keep the records of storages byte for byte, or sort them for better compression and zero unused bytes; validators
    /// load both
    #[arg(long, value_enum, default_value_t)]
    layout: LayoutArg,
    /// zstd for .tar.zst; lz4 for .tar.lz4 (not read by Firedancer); none for a plain .tar (not read by Agave)
    #[arg(long, value_enum, default_value_t)]
    format: FormatArg,
    /// Bytes of tar in one zstd frame, 64KiB to 32MiB
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = values::size)]
    pub frame_size: u64,
    /// Leave out the checksum of each frame
    #[arg(long)]
    no_checksum: bool,
    /// Store a frame uncompressed if compression saves less than this, in percent; 0 compresses every frame
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

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PresetArg {
    Fast,
    Balanced,
    Small,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum LayoutArg {
    #[default]
    Verbatim,
    Clustered,
}

impl CodecArgs {
    /// The codec that the flags ask for; warns of formats that not every client reads.
    pub fn codec(&self, ui: &Ui) -> Result<Codec> {
        let format = match self.format {
            FormatArg::Zstd => self.zstd()?,
            _ if self.preset.is_some() || self.zstd_params.is_some() || self.zstd_level.is_some() => {
                let message =
                    "--zstd-level, --preset and --zstd-params apply only to zstd, but --format selects another format";
                return Err(Error::usage(message).with_hint("leave out --format, or the zstd flags"));
            }
            FormatArg::Lz4 => Format::Lz4,
            FormatArg::None => Format::None,
        };
        let layout = match self.layout {
            LayoutArg::Verbatim => RecordLayout::Verbatim,
            LayoutArg::Clustered => RecordLayout::Clustered,
        };
        let codec =
            Codec::new(format).has_checksum(!self.no_checksum).min_savings_percent(self.min_savings).layout(layout);
        if let Some(words) = readers_in_words(codec.extension()) {
            let what = if codec.format == Format::None { "a plain .tar" } else { ".tar.lz4" };
            ui.warn(&format!("{what}: {words}"));
        }
        Ok(codec)
    }

    fn zstd(&self) -> Result<Format> {
        let effort = match self.preset {
            Some(PresetArg::Fast) => Some(Effort::Fast),
            Some(PresetArg::Balanced) => Some(Effort::Balanced),
            Some(PresetArg::Small) | None => None,
        };
        if let Some(effort) = effort {
            if self.zstd_params.is_some() {
                let message = "--preset fast and balanced have no zstd parameters: they find matches themselves";
                return Err(Error::usage(message).with_hint("leave out --preset, or --zstd-params"));
            }
            return Ok(Format::ZstdRecords(effort));
        }
        let (level, preset) = match self.preset {
            Some(_) => PRESET_SMALL,
            None => (self.zstd_level.unwrap_or(ZSTD_LEVEL_DEFAULT), ""),
        };
        let params = preset.parse::<ZstdParams>()?;
        let own = self.zstd_params.as_deref().unwrap_or_default().parse::<ZstdParams>()?;
        Ok(Format::Zstd { level, params: params.with(&own) })
    }
}

/// How a codec and what it made are called for people.
pub fn show_codec(codec: &Codec, frames: &FrameTotals) -> String {
    let has_clusters = codec.layout == RecordLayout::Clustered;
    let codec = match codec.format {
        Format::Zstd { level, params } if params.is_stock() => format!("zstd level {level}"),
        Format::Zstd { level, params } => format!("zstd level {level} with {params}"),
        Format::ZstdRecords(Effort::Fast) => "zstd by records, fast".to_string(),
        Format::ZstdRecords(Effort::Balanced) => "zstd by records, balanced".to_string(),
        Format::Lz4 => "lz4".to_string(),
        Format::None => "plain tar".to_string(),
    };
    let stored = match frames.stored_frames {
        0 => String::new(),
        stored => format!(" ({} stored raw)", values::show_count(stored)),
    };
    let layout = if has_clusters { ", clustered" } else { "" };
    format!("{codec}{layout}, {}{stored}", values::count_of(frames.frames, "frame"))
}

/// Whether the archive goes to standard output, which must then not be a terminal.
pub fn is_stdout(output: &Path, ui: &Ui) -> Result<bool> {
    if output.as_os_str() != "-" {
        return Ok(false);
    }
    if std::io::stdout().is_terminal() {
        return Err(Error::usage("cannot write an archive to a terminal").with_hint("pipe it into a program or a file"));
    }
    ui.keep_stdout_for_data();
    Ok(true)
}
