//! The examples of RFC 7541 appendix C, and blocks that cannot be decoded.

use uringcore_http::http2::hpack::{Bounds, Decoder, Invalid, Section};

const BOUNDS: Bounds = Bounds {
    bytes: 64 << 10,
    fields: 256,
};

fn bytes(hex: &str) -> Vec<u8> {
    let digits = Vec::from_iter(hex.chars().filter(|digit| !digit.is_whitespace()));
    let pairs = digits.chunks(2).map(String::from_iter);
    let byte = |pair: String| u8::from_str_radix(&pair, 16).expect("hexadecimal digits");
    pairs.map(byte).collect()
}

fn text(section: &Section) -> String {
    let lines = section
        .fields
        .iter()
        .map(|(name, value)| format!("{}: {}", name.escape_ascii(), value.escape_ascii()));
    Vec::from_iter(lines).join("\n")
}

fn check(decoder: &mut Decoder, block: &str, expected: &str) {
    let section = decoder.decode(&bytes(block), BOUNDS).expect("a block");
    assert_eq!(text(&section), expected);
    assert!(!section.is_too_large);
}

#[test]
fn appendix_c_2_has_each_representation() {
    let mut decoder = Decoder::default();
    check(
        &mut decoder,
        "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
        "custom-key: custom-header",
    );
    check(&mut decoder, "be", "custom-key: custom-header");
    check(
        &mut decoder,
        "040c 2f73 616d 706c 652f 7061 7468",
        ":path: /sample/path",
    );
    check(
        &mut decoder,
        "1008 7061 7373 776f 7264 0673 6563 7265 74",
        "password: secret",
    );
    check(&mut decoder, "82", ":method: GET");
}

const FIRST: &str = ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com";
const SECOND: &str =
    ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache";
const THIRD: &str = ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value";

#[test]
fn appendix_c_3_has_requests_without_huffman_code() {
    let mut decoder = Decoder::default();
    let first = "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d";
    check(&mut decoder, first, FIRST);
    let second = "8286 84be 5808 6e6f 2d63 6163 6865";
    check(&mut decoder, second, SECOND);
    let third = "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65";
    check(&mut decoder, third, THIRD);
}

#[test]
fn appendix_c_4_has_requests_with_huffman_code() {
    let mut decoder = Decoder::default();
    let first = "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff";
    check(&mut decoder, first, FIRST);
    check(&mut decoder, "8286 84be 5886 a8eb 1064 9cbf", SECOND);
    let third = "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf";
    check(&mut decoder, third, THIRD);
}

const RESPONSES: [&str; 3] = [
    ":status: 302\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com",
    ":status: 307\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com",
    ":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\nlocation: https://www.example.com\ncontent-encoding: gzip\nset-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
];

/// The examples of responses use a table of 256 bytes, which this instruction sets.
const TABLE_OF_256: &str = "3fe1 01";

#[test]
fn appendix_c_5_has_responses_that_evict_entries() {
    let mut decoder = Decoder::default();
    let first = "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133
        2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63
        6f6d";
    check(
        &mut decoder,
        &format!("{TABLE_OF_256}{first}"),
        RESPONSES[0],
    );
    check(&mut decoder, "4803 3330 37c1 c0bf", RESPONSES[1]);
    let third = "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d
        54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851
        5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31";
    check(&mut decoder, third, RESPONSES[2]);
}

#[test]
fn appendix_c_6_has_responses_with_huffman_code() {
    let mut decoder = Decoder::default();
    let first = "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6
        2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3";
    check(
        &mut decoder,
        &format!("{TABLE_OF_256}{first}"),
        RESPONSES[0],
    );
    check(&mut decoder, "4883 640e ffc1 c0bf", RESPONSES[1]);
    let third = "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab
        77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160
        65c0 03ed 4ee5 b106 3d50 07";
    check(&mut decoder, third, RESPONSES[2]);
}

#[test]
fn blocks_that_cannot_be_decoded_are_invalid() {
    for (block, why) in [
        ("80", "index 0"),
        ("be", "an index behind the last entry"),
        ("ff80 8080 8080 8080 8080 8001", "an integer that overflows"),
        ("40", "no name"),
        ("4003 6162", "a name that is cut"),
        ("0001 6105 62", "a value that is cut"),
        ("0001 6181 00", "Huffman code with padding of zeros"),
        ("0001 6184 ffff ffff", "Huffman code with EOS"),
        ("0001 6182 1fff", "padding of more than seven bits"),
        ("82 20", "a size update behind a line"),
        ("3fe2 1f", "a table above its maximum"),
        ("7f", "a name's index that is cut"),
    ] {
        let decoded = Decoder::default().decode(&bytes(block), BOUNDS);
        assert_eq!(decoded, Err(Invalid), "{why}");
    }
}

#[test]
fn an_entry_that_is_larger_than_the_table_empties_it() {
    let mut decoder = Decoder::default();
    check(&mut decoder, "4001 6101 62", "a: b");
    let large = [&bytes("4001 617f a11e")[..], &[b'v'; 4000]].concat();
    let section = decoder.decode(&large, BOUNDS).expect("a block");
    assert_eq!(section.fields[0].1.len(), 4000);
    check(&mut decoder, "be", &format!("a: {}", "v".repeat(4000)));
    let huge = [&bytes("4001 617f 991f")[..], &[b'v'; 4120]].concat();
    decoder.decode(&huge, BOUNDS).expect("a block");
    assert_eq!(decoder.decode(&[0xbe], BOUNDS), Err(Invalid));
}

#[test]
fn a_large_section_is_cut_and_still_changes_the_table() {
    let mut decoder = Decoder::default();
    let bounds = Bounds {
        bytes: 100,
        fields: 3,
    };
    let entry = [&bytes("4001 617f d10e")[..], &[b'v'; 2000]].concat();
    let section = decoder.decode(&entry, bounds).expect("a block");
    assert!(section.is_too_large && section.fields.is_empty());
    // A bomb: each byte stands for two kilobytes.
    let bomb = [&[0x82][..], &[0xbe; 10_000]].concat();
    let section = decoder.decode(&bomb, bounds).expect("a block");
    assert_eq!((section.is_too_large, section.fields.len()), (true, 1));
    let many = decoder.decode(
        &[0x82; 4],
        Bounds {
            bytes: 1000,
            ..bounds
        },
    );
    let many = many.expect("a block");
    assert_eq!((many.is_too_large, many.fields.len()), (true, 3));
}
