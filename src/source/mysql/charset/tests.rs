use super::*;

fn charset(name: &str) -> Charset {
    Charset::by_name(name).unwrap_or_else(|| panic!("no charset {name}"))
}

/// The bytes (in hex) become the text, with so many characters that have no equal.
fn check(name: &str, hex: &str, text: &str, unmapped: usize) {
    let bytes: Vec<u8> =
        (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect();
    let mut out = String::from("before ");
    let counted = charset(name).decode_into(&bytes, &mut out);
    assert_eq!((out.as_str(), counted), (format!("before {text}").as_str(), unmapped), "{name} {hex}");
}

#[test]
fn every_charset_of_both_servers_is_known_by_its_name() {
    let names = "armscii8 ascii big5 binary cp1250 cp1251 cp1256 cp1257 cp850 cp852 cp866 cp932 dec8 eucjpms euckr \
        gb18030 gb2312 gbk geostd8 greek hebrew hp8 keybcs2 koi8r koi8u latin1 latin2 latin5 latin7 macce macroman \
        sjis swe7 tis620 ucs2 ujis utf16 utf16le utf32 utf8mb3 utf8mb4";
    for name in names.split(' ') {
        assert_eq!(charset(name).name(), name);
        assert_eq!(charset(&name.to_ascii_uppercase()).name(), name);
    }
    assert_eq!(all().count(), names.split(' ').count());
    assert_eq!(charset("utf8").name(), "utf8mb3");
    assert_eq!(Charset::by_name("klingon"), None);
    assert_eq!(Charset::by_collation_id(8), Some(charset("latin1")));
}

#[test]
fn text_is_decoded_as_the_server_converts_it() {
    check("latin1", "61E98093", "aé€“", 0);
    check("latin1", "81", "\u{81}", 0);
    check("cp1250", "613F81", "a??", 1);
    check("swe7", "5B5C5D3F7F", "ÄÖÅ??", 1);
    check("sjis", "82A0B1815F", "あｱ\\", 0);
    check("cp932", "82A0B1815F8740", "あｱ＼①", 0);
    check("ujis", "A4A28EB18FB0A1", "あｱ丂", 0);
    check("gbk", "C4E3BAC3", "你好", 0);
    check("gb18030", "C4E394 39DA33".replace(' ', "").as_str(), "你💩", 0);
    check("big5", "A741A66EA145", "你好•", 0);
    check("euckr", "B0A1", "가", 0);
    check("ucs2", "00410416", "AЖ", 0);
    check("utf16", "0041D83DDE00", "A😀", 0);
    check("utf16le", "41003DD800DE", "A😀", 0);
    check("utf32", "0001F600", "😀", 0);
    check("utf8mb4", "F09F98803F", "😀?", 0);
}

#[test]
fn what_has_no_character_becomes_a_question_mark_and_is_counted() {
    check("ascii", "61C3A93F", "a???", 2);
    check("utf8mb4", "61C36280", "a?b?", 2);
    check("sjis", "8740", "?", 1);
    check("sjis", "81", "?", 1);
    check("sjis", "8120", "? ", 1);
    check("ujis", "8FA1", "??", 2);
    check("gb18030", "8130", "?0", 1);
    check("big5", "A15A", "\u{FFFD}", 1);
    check("ucs2", "0041D83D42", "A??", 2);
    check("utf16", "D83D0041", "?A", 1);
    check("utf32", "0011000000", "??", 2);
}

/// The checksums of the servers' own conversions (`tests/scripts/charset_tables.py checksums`): all of MariaDB 10.11,
/// and of MySQL 9.7 what MariaDB lacks. Charset, codes, CRC-32.
#[rustfmt::skip]
const CHECKSUMS: &[(&str, usize, u32)] = &[
    ("armscii8", 256, 0xfb249316),
    ("big5", 14101, 0xdc008bda),
    ("cp1250", 256, 0x6f231116),
    ("cp1251", 256, 0x49fcb8ea),
    ("cp1256", 256, 0xfd331962),
    ("cp1257", 256, 0xeadbde34),
    ("cp850", 256, 0xda6b85cd),
    ("cp852", 256, 0xc25133ce),
    ("cp866", 256, 0x2c8bffb8),
    ("cp932", 23504, 0xef448eb3),
    ("dec8", 256, 0xc8f7db8e),
    ("eucjpms", 17863, 0x6c29946f),
    ("euckr", 22556, 0xb9a4f0ad),
    ("gb2312", 8306, 0x876dd3d7),
    ("gbk", 24068, 0x3bf3ccae),
    ("geostd8", 256, 0x52e3cc9b),
    ("greek", 256, 0x22738597),
    ("hebrew", 256, 0x98b91f0f),
    ("hp8", 256, 0xcdbead6a),
    ("keybcs2", 256, 0xbd5b32ba),
    ("koi8r", 256, 0x1cf9e789),
    ("koi8u", 256, 0xa06b3ae7),
    ("latin1", 256, 0x1ec73b5f),
    ("latin2", 256, 0x7ca3c1f7),
    ("latin5", 256, 0x88e16feb),
    ("latin7", 256, 0xd7834e33),
    ("macce", 256, 0x797cc90f),
    ("macroman", 256, 0xad6d3063),
    ("sjis", 23504, 0xc1e64e94),
    ("swe7", 256, 0x75b71b55),
    ("tis620", 256, 0xc07a4f94),
    ("ujis", 17863, 0x50d347ca),
    ("gb18030", 24068, 0x4df861e4),
];

/// Of every tenth code of gb18030 with four bytes.
const GB18030_FOUR_BYTES: (usize, u32) = (158760, 0x4547f51c);

#[derive(Default)]
struct Sum {
    codes: usize,
    crc: crc32fast::Hasher,
}

impl Sum {
    fn add(&mut self, charset: Charset, code: &[u8]) {
        if !well_formed(charset, code) {
            return;
        }
        let mut text = String::new();
        charset.decode_into(code, &mut text);
        text.push('\n');
        self.codes += 1;
        self.crc.update(text.as_bytes());
    }

    fn finish(self) -> (usize, u32) {
        (self.codes, self.crc.finalize())
    }
}

fn well_formed(charset: Charset, code: &[u8]) -> bool {
    let Kind::MultiByte(charset) = charset.0 else { return true };
    charset.is_well_formed(code)
}

#[test]
fn every_code_of_every_charset_is_what_the_server_makes_of_it() {
    for (name, codes, crc) in CHECKSUMS {
        let charset = charset(name);
        let mut sum = Sum::default();
        (0..=0xFFu8).for_each(|byte| sum.add(charset, &[byte]));
        if charset.max_bytes_per_char() > 1 {
            (0x8000..=0xFFFFu16).for_each(|code| sum.add(charset, &code.to_be_bytes()));
        }
        if charset.max_bytes_per_char() == 3 {
            let codes = (0x8080..=0xFFFFu16).map(u16::to_be_bytes);
            codes.for_each(|[second, third]| sum.add(charset, &[0x8F, second, third]));
        }
        assert_eq!(sum.finish(), (*codes, *crc), "{name}");
    }
}

#[test]
fn codes_of_four_bytes_of_gb18030_are_what_the_server_makes_of_it() {
    let mut sum = Sum::default();
    for first in 0..126u8 {
        for second in 0..10 {
            for third in 0..126 {
                let fourth = 0x30 + ((u16::from(first) + u16::from(second) + u16::from(third)) % 10) as u8;
                let code = [first + 0x81, second + 0x30, third + 0x81, fourth];
                sum.add(charset("gb18030"), &code);
            }
        }
    }
    assert_eq!(sum.finish(), GB18030_FOUR_BYTES);
}
