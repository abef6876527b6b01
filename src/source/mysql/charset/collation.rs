//! Ids of collations (`information_schema.collations`), which stand for character sets in row metadata.

/// MariaDB's `_nopad_` collations are the padded ones' ids and this.
const NO_PAD: u16 = 1024;

/// The character set of a collation of MySQL 5.6 to 9 or MariaDB up to 11, also of the ids that such a server
/// reserves for it.
pub(super) fn charset_name(id: u16) -> Option<&'static str> {
    let id = if (NO_PAD..2 * NO_PAD).contains(&id) { id - NO_PAD } else { id };
    let at = RANGES.partition_point(|(first, _, _)| *first <= id).checked_sub(1)?;
    RANGES.get(at).filter(|(_, last, _)| id <= *last).map(|(_, _, name)| *name)
}

/// First and last id, in ascending order.
#[rustfmt::skip]
const RANGES: &[(u16, u16, &str)] = &[
    (1, 1, "big5"), (2, 2, "latin2"), (3, 3, "dec8"), (4, 4, "cp850"), (5, 5, "latin1"), (6, 6, "hp8"),
    (7, 7, "koi8r"), (8, 8, "latin1"), (9, 9, "latin2"), (10, 10, "swe7"), (11, 11, "ascii"), (12, 12, "ujis"),
    (13, 13, "sjis"), (14, 14, "cp1251"), (15, 15, "latin1"), (16, 16, "hebrew"), (18, 18, "tis620"),
    (19, 19, "euckr"), (20, 20, "latin7"), (21, 21, "latin2"), (22, 22, "koi8u"), (23, 23, "cp1251"),
    (24, 24, "gb2312"), (25, 25, "greek"), (26, 26, "cp1250"), (27, 27, "latin2"), (28, 28, "gbk"),
    (29, 29, "cp1257"), (30, 30, "latin5"), (31, 31, "latin1"), (32, 32, "armscii8"), (33, 33, "utf8mb3"),
    (34, 34, "cp1250"), (35, 35, "ucs2"), (36, 36, "cp866"), (37, 37, "keybcs2"), (38, 38, "macce"),
    (39, 39, "macroman"), (40, 40, "cp852"), (41, 42, "latin7"), (43, 43, "macce"), (44, 44, "cp1250"),
    (45, 46, "utf8mb4"), (47, 49, "latin1"), (50, 52, "cp1251"), (53, 53, "macroman"), (54, 55, "utf16"),
    (56, 56, "utf16le"), (57, 57, "cp1256"), (58, 59, "cp1257"), (60, 61, "utf32"), (62, 62, "utf16le"),
    (63, 63, "binary"), (64, 64, "armscii8"), (65, 65, "ascii"), (66, 66, "cp1250"), (67, 67, "cp1256"),
    (68, 68, "cp866"), (69, 69, "dec8"), (70, 70, "greek"), (71, 71, "hebrew"), (72, 72, "hp8"), (73, 73, "keybcs2"),
    (74, 74, "koi8r"), (75, 75, "koi8u"), (76, 76, "utf8mb3"), (77, 77, "latin2"), (78, 78, "latin5"),
    (79, 79, "latin7"), (80, 80, "cp850"), (81, 81, "cp852"), (82, 82, "swe7"), (83, 83, "utf8mb3"), (84, 84, "big5"),
    (85, 85, "euckr"), (86, 86, "gb2312"), (87, 87, "gbk"), (88, 88, "sjis"), (89, 89, "tis620"), (90, 90, "ucs2"),
    (91, 91, "ujis"), (92, 93, "geostd8"), (94, 94, "latin1"), (95, 96, "cp932"), (97, 98, "eucjpms"),
    (99, 99, "cp1250"), (101, 124, "utf16"), (128, 151, "ucs2"), (159, 159, "ucs2"), (160, 183, "utf32"),
    (192, 215, "utf8mb3"), (223, 223, "utf8mb3"), (224, 247, "utf8mb4"), (248, 250, "gb18030"), (255, 330, "utf8mb4"),
    (576, 578, "utf8mb3"), (608, 610, "utf8mb4"), (640, 642, "ucs2"), (672, 674, "utf16"), (736, 738, "utf32"),
    (2048, 2303, "utf8mb3"), (2304, 2559, "utf8mb4"), (2560, 2815, "ucs2"), (2816, 3071, "utf16"),
    (3072, 3327, "utf32"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::mysql::charset::Charset;

    #[test]
    fn the_ranges_ascend_and_name_known_charsets() {
        assert!(RANGES.windows(2).all(|pair| pair[0].1 < pair[1].0));
        assert!(RANGES.iter().all(|(first, last, name)| first <= last && Charset::by_name(name).is_some()));
    }

    #[test]
    fn ids_of_both_servers_are_known() {
        let name = |id| charset_name(id).unwrap_or("none");
        assert_eq!(
            [name(8), name(33), name(45), name(63), name(255)],
            ["latin1", "utf8mb3", "utf8mb4", "binary", "utf8mb4"]
        );
        assert_eq!([name(309), name(323), name(250)], ["utf8mb4", "utf8mb4", "gb18030"]);
        assert_eq!([name(1069), name(1032), name(1216)], ["utf8mb4", "latin1", "utf8mb3"], "nopad");
        assert_eq!(
            [name(2048), name(2304), name(2560), name(2816), name(3072)],
            ["utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32"]
        );
        assert_eq!([name(0), name(17), name(100), name(5000), name(u16::MAX)], ["none"; 5]);
    }
}
