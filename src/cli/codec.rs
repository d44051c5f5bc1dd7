//! Flags for encoding, shared by all commands that write archives.

use clap::Args;
use slotpress::archive::{ArchiveFormat, Codec, EncodingOptions, RecordLayout, ZSTD_LEVEL_DEFAULT};
use slotpress::program::worker_memory_bytes;
use slotpress::{Error, Progress, Result};
use slotpress_read::describe_readers;

use super::arguments::ThreadArgs;
use super::memory::threads_that_fit;
use super::ui::Ui;
use super::values::{self, Choice};

#[derive(Clone, Debug, Args)]
pub struct ZstdArgs {
    /// zstd level: 1 to 22; negative levels are faster, and compress less [default: 1]
    ///
    /// `slotpress levels` helps to choose.
    #[arg(long, alias = "level", value_name = "N", value_parser = values::parse_zstd_level, allow_negative_numbers = true)]
    zstd_level: Option<i32>,
    /// Keep the records of storages byte for byte, or sort them and zero unused bytes, which compresses better;
    /// validators load both
    #[arg(long, default_value = "verbatim", value_parser = values::choice_parser(LAYOUTS))]
    layout: RecordLayout,
}

#[derive(Clone, Debug, Args)]
pub struct EncodingArgs {
    #[command(flatten)]
    zstd: ZstdArgs,
    /// Format of the new archive; Firedancer does not read lz4, and Agave does not read plain tar
    #[arg(long, default_value = "zstd", value_parser = values::choice_parser(FORMATS))]
    format: ArchiveFormat,
    /// Bytes of tar in one zstd frame, 64KiB to 32MiB
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = values::parse_size)]
    pub frame_size: u64,
}

const LAYOUTS: &[Choice<RecordLayout>] = &[
    Choice("verbatim", RecordLayout::Verbatim, "Byte for byte"),
    Choice("clustered", RecordLayout::Clustered, "Sorted, with unused bytes zeroed"),
];

const FORMATS: &[Choice<ArchiveFormat>] = &[
    Choice("zstd", ArchiveFormat::Zstd { level: ZSTD_LEVEL_DEFAULT }, ".tar.zst"),
    Choice("lz4", ArchiveFormat::Lz4, ".tar.lz4, not read by Firedancer"),
    Choice("none", ArchiveFormat::None, "A plain .tar, not read by Agave"),
];

/// Sets the number of workers: at most as many as fit into the memory limit of the process together with
/// `other_bytes`.
pub fn set_workers(
    options: EncodingOptions,
    other_bytes: u64,
    workers: &ThreadArgs,
    ui: &Ui,
) -> Result<EncodingOptions> {
    let worker_bytes = || worker_memory_bytes(&options.codec, options.frame_size_bytes);
    let threads = threads_that_fit(workers.threads, worker_bytes, other_bytes, ui)?;
    Ok(options.threads(threads))
}

impl ZstdArgs {
    pub fn options(&self) -> EncodingOptions {
        EncodingOptions::default().codec(Codec::zstd(self.zstd_level.unwrap_or(ZSTD_LEVEL_DEFAULT)).layout(self.layout))
    }
}

impl EncodingArgs {
    /// Returns options with this codec and frame size. Warns if not every client reads the format.
    pub fn options(&self, ui: &Ui) -> Result<EncodingOptions> {
        Ok(EncodingOptions::default().codec(self.codec(ui)?).frame_size_bytes(self.frame_size))
    }

    fn codec(&self, ui: &Ui) -> Result<Codec> {
        let format = match (&self.format, self.zstd.zstd_level) {
            (ArchiveFormat::Zstd { .. }, Some(level)) => ArchiveFormat::Zstd { level },
            (format, None) => format.clone(),
            (_, Some(_)) => {
                let message = "--zstd-level applies only to zstd, but --format selects another format";
                return Err(Error::usage(message).with_hint("leave out --format, or --zstd-level"));
            }
        };
        let codec = Codec::new(format).layout(self.zstd.layout);
        if let Some(words) = describe_readers(codec.compression()) {
            ui.warn(&match codec.format {
                ArchiveFormat::None => format!("a plain .tar: {words}; recompress it before you restore it"),
                _ => format!(".tar.lz4: {words}"),
            });
        }
        Ok(codec)
    }
}
