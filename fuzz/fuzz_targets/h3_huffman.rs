//! Invariant: input that decodes is exactly the encoding of its output, and `encoded_len` is
//! correct.

#![no_main]

use libfuzzer_sys::fuzz_target;
use uringcore_h3::qpack::huffman;

fuzz_target!(|data: &[u8]| {
    let mut text = Vec::new();
    if huffman::decode(data, &mut text).is_ok() {
        let mut code = Vec::new();
        huffman::encode(&text, &mut code);
        assert_eq!(code, data, "the code is canonical, its padding too");
    }
    let mut code = Vec::new();
    huffman::encode(data, &mut code);
    assert_eq!(code.len(), huffman::encoded_len(data));
    let mut back = Vec::new();
    huffman::decode(&code, &mut back).expect("what was encoded decodes");
    assert_eq!(back, data);
});
