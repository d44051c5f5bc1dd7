//! Exports with random filters and options equal a naive model of the same accounts.

use proptest::prelude::*;
use slotpress::export::{DataPart, ExportOptions, ExportTo, Filter, Memcmp, Table, TableFormat, export};
use slotpress::types::Address;
use slotpress::verify::VerifyOptions;
use slotpress::{NoProgress, Snapshot};

use crate::common::records::{PlainRecord, newest, records};
use crate::export::fixture_pair;

fn address(text: &str) -> Address {
    text.parse().expect("an address")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Filters use the values of some accounts, so that they match at least those.
    #[test]
    fn rows_are_those_of_a_naive_model(
        picks in proptest::collection::vec(any::<prop::sample::Index>(), 6),
        has_filter in proptest::collection::vec(any::<bool>(), 4),
        (offset, length) in (0usize..80, 1usize..12),
        part in prop_oneof![Just(None), (0u32..60, 0u32..40).prop_map(Some)],
        threads in 1usize..4,
        is_pair: bool,
    ) {
        let [full, incremental] = fixture_pair("agave-4.2.2");
        let archives: Vec<_> = if is_pair { vec![&full, &incremental] } else { vec![&full] };
        let all: Vec<PlainRecord> = archives.iter().flat_map(|archive| records(archive)).collect();
        let alive: Vec<PlainRecord> = newest(&all).into_values().filter(|record| record.lamports > 0).collect();
        let picked: Vec<&PlainRecord> = picks.iter().map(|pick| pick.get(&alive)).collect();
        let mut filter = Filter::default();
        let mut expected: Vec<&PlainRecord> = alive.iter().collect();
        if has_filter[0] {
            let owners = [&picked[0].owner, &picked[1].owner];
            filter.owners = owners.iter().map(|owner| address(owner)).collect();
            expected.retain(|account| owners.contains(&&account.owner));
        }
        if has_filter[1] {
            filter.data_size = Some(picked[2].data.len() as u64);
            expected.retain(|account| account.data.len() == picked[2].data.len());
        }
        let compared = offset..offset + length;
        if let Some(bytes) = picked[3].data.get(compared.clone()).filter(|_| has_filter[2]) {
            filter.memcmp.push(format!("{offset}:{}", bs58::encode(bytes).into_string()).parse::<Memcmp>().expect("a comparison"));
            expected.retain(|account| account.data.get(compared.clone()) == Some(bytes));
        }
        if has_filter[3] {
            let keys = [&picked[4].pubkey, &picked[5].pubkey];
            filter.addresses = keys.iter().map(|key| address(key)).collect();
            expected.retain(|account| keys.contains(&&account.pubkey));
        }
        let data = part.map_or(DataPart::None, |(offset, length)| DataPart::Slice { offset, length });
        let mut expected: Vec<String> = expected
            .into_iter()
            .map(|account| {
                let PlainRecord { owner, pubkey, lamports, slot, executable, data, .. } = account;
                let row = format!("{owner},{pubkey},{lamports},{slot},{},{executable}", data.len());
                let Some((offset, length)) = part else { return row };
                let bytes = data.iter().skip(offset as usize).take(length as usize);
                format!("{row},{}", bytes.map(|byte| format!("{byte:02x}")).collect::<String>())
            })
            .collect();
        expected.sort();

        let snapshot = Snapshot::from_archives(archives[0], archives.get(1));
        let mut options = ExportOptions::new(snapshot).filter(filter).data(data);
        options.format = TableFormat::Csv;
        options.tables = vec![Table::Accounts];
        options.verify = VerifyOptions::default().threads(threads);
        let mut text = Vec::new();
        let to = ExportTo::Stream(&mut text);
        export(&options, to, &NoProgress).expect("exported");
        let text = String::from_utf8(text).expect("text");
        let mut rows: Vec<&str> = text.lines().skip(1).collect();
        rows.sort_unstable();
        prop_assert_eq!(rows, expected);
    }
}
