//! Sealing against a published vector, and against everything that could be done to a sealed value.

use proptest::prelude::*;

use super::*;

const CONTEXT: &[u8] = b"endpoint:ep_1:secrets";
const SECRET: &[u8] = b"whsec_example";
const NONCE: [u8; NONCE_BYTES] = ascending(0x40);

/// The key of the published vector.
const KEY: [u8; KEY_BYTES] = ascending(0x80);
const KEY_BASE64: &str = "gIGCg4SFhoeIiYqLjI2Oj5CRkpOUlZaXmJmam5ydnp8=";
const KEY_HEX: &str = "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f";

/// Its id, and [`SECRET`] sealed with it, computed by another implementation.
const KEY_ID: &str = "1ba124e7d98ff279";
const SEALED: &str = "011ba124e7d98ff279404142434445464748494a4b4c4d4e4f50515253545556578664009138\
                      af91229a7f07bf938bb20e9298cc03848f499b4767ed5d51";

/// A key whose base64 has characters that differ between the two alphabets.
const OTHER: [u8; KEY_BYTES] = [0xfb; KEY_BYTES];

const fn ascending<const N: usize>(first: u8) -> [u8; N] {
    let mut bytes = [first; N];
    let mut index = 1;
    while index < N {
        bytes[index] = bytes[index - 1] + 1;
        index += 1;
    }
    bytes
}

fn keyring(keys: &[[u8; KEY_BYTES]]) -> Keyring {
    Keyring::new(keys.iter().map(|key| SealingKey::from_bytes(*key)).collect()).expect("valid keys")
}

fn hex(bytes: &[u8]) -> String {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    pairs.concat()
}

/// A sealed value of nothing.
const SHORTEST: usize = 1 + KEY_ID_BYTES + NONCE_BYTES + TAG_BYTES;

fn id(key: [u8; KEY_BYTES]) -> SealingKeyId {
    SealingKey::from_bytes(key).id()
}

/// draft-irtf-cfrg-xchacha-03, appendix A.3.1.
#[test]
fn the_cipher_is_the_one_of_the_published_vector() {
    let key = SealingKey::from_bytes(KEY);
    let associated = [0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7];
    let plain = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for \
                  the future, sunscreen would be it.";
    let body = key.encrypt(&NONCE, &associated, plain);
    assert_eq!(
        hex(&body),
        "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb731c7f1b0b4aa6440bf3a82f\
         4eda7e39ae64c6708c54c216cb96b72e1213b4522f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f\
         76b2383565d3fff921f9664c97637da9768812f615c68b13b52ec0875924c1c7987947deafd8780acf49"
    );
    assert_eq!(key.decrypt(&NONCE, &associated, &body).as_deref(), Some(&plain[..]));
}

/// Fails if what older versions have stored could no longer be read.
#[test]
fn the_stored_form_stays_what_it_is() {
    let keys = keyring(&[KEY]);
    let sealed = keys.seal(NONCE, CONTEXT, SECRET);
    assert_eq!(hex(&sealed), SEALED);
    assert_eq!(keys.newest_id().to_string(), KEY_ID);
    assert_eq!(key_id_of(&sealed), Ok(keys.newest_id()));
}

#[test]
fn what_was_sealed_opens() {
    let keys = keyring(&[KEY]);
    for length in [0, 1, 15, 16, 17, 63, 64, 65, 10_000] {
        let plain: Vec<u8> = (0..length).map(|n| u8::try_from(n % 251).expect("small")).collect();
        for context in [&b""[..], CONTEXT] {
            let sealed = keys.seal(NONCE, context, &plain);
            assert_eq!(keys.open(context, &sealed), Ok(plain.clone()), "{length} bytes");
        }
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    let keys = keyring(&[KEY, OTHER]);
    let sealed = keys.seal(NONCE, CONTEXT, SECRET);
    for at in 0..sealed.len() {
        for bit in 0..8 {
            let mut changed = sealed.clone();
            changed[at] ^= 1 << bit;
            let refused = keys.open(CONTEXT, &changed).expect_err("changed");
            let expected = match (at, changed[0]) {
                (0, version @ 1..=8) => OpenError::UnknownVersion(version),
                (0, _) => OpenError::NotSealed,
                (1..=8, _) => OpenError::UnknownKey { wanted: key_id_of(&changed).expect("whole") },
                _ => OpenError::Damaged,
            };
            assert_eq!(refused, expected, "byte {at}, bit {bit}");
        }
    }
}

#[test]
fn a_value_cut_short_or_longer_is_refused() {
    let keys = keyring(&[KEY]);
    let mut sealed = keys.seal(NONCE, CONTEXT, SECRET);
    assert_eq!(keys.open(CONTEXT, b""), Err(OpenError::NotSealed));
    assert_eq!(key_id_of(b""), Err(OpenError::NotSealed));
    for length in 1..sealed.len() {
        assert_eq!(keys.open(CONTEXT, &sealed[..length]), Err(OpenError::Damaged), "{length}");
    }
    sealed.push(0);
    assert_eq!(keys.open(CONTEXT, &sealed), Err(OpenError::Damaged));
}

#[test]
fn a_value_moved_to_another_place_does_not_open() {
    let keys = keyring(&[KEY]);
    let sealed = keys.seal(NONCE, CONTEXT, SECRET);
    for elsewhere in [
        &b""[..],
        b"endpoint:ep_2:secrets",
        b"endpoint:ep_1:secret",
        b"endpoint:ep_1:secrets ",
        b"source:ep_1:secrets",
    ] {
        assert_eq!(keys.open(elsewhere, &sealed), Err(OpenError::Damaged), "{elsewhere:?}");
    }
}

#[test]
fn text_that_was_never_sealed_is_told_apart() {
    let keys = keyring(&[KEY]);
    for text in ["[]", r#"[{"text":"whsec_x"}]"#, "whsec_x", " []", "\n[]", "\t[]", "\0", "\u{fe}"]
    {
        assert_eq!(keys.open(CONTEXT, text.as_bytes()), Err(OpenError::NotSealed), "{text:?}");
    }
}

#[test]
fn a_key_that_is_missing_is_named_and_how_to_give_it() {
    let sealed = keyring(&[KEY]).seal(NONCE, CONTEXT, SECRET);
    let refused = keyring(&[OTHER]).open(CONTEXT, &sealed).expect_err("another key");
    assert_eq!(refused, OpenError::UnknownKey { wanted: id(KEY) });
    let text = refused.to_string();
    for part in [KEY_ID, "--secret-key-file", "POSTRIDER_SECRET_KEY"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn the_newest_key_seals_and_every_key_opens() {
    let third = [3; KEY_BYTES];
    let old = keyring(&[KEY]).seal(NONCE, CONTEXT, SECRET);
    let keys = keyring(&[OTHER, third, KEY]);
    assert_eq!(keys.newest_id(), id(OTHER));
    assert_eq!(keys.open(CONTEXT, &old).as_deref(), Ok(SECRET));

    let new = keys.seal(NONCE, CONTEXT, SECRET);
    assert_eq!(key_id_of(&new), Ok(id(OTHER)));
    assert_eq!(keyring(&[OTHER]).open(CONTEXT, &new).as_deref(), Ok(SECRET), "without the old key");
}

#[test]
fn a_keyring_has_keys_that_differ_and_a_bound() {
    let distinct = |count: usize| -> Vec<SealingKey> {
        let bytes = (0..count).map(|n| u8::try_from(n).expect("few"));
        bytes.map(|n| SealingKey::from_bytes([n; KEY_BYTES])).collect()
    };
    let twice = vec![SealingKey::from_bytes(KEY), SealingKey::from_bytes(KEY)];
    assert_eq!(Keyring::new(vec![]).err(), Some(KeyError::NoKey));
    assert_eq!(Keyring::new(twice).err(), Some(KeyError::Twice(id(KEY))));
    assert_eq!(Keyring::new(distinct(MAX_KEYS)).err(), None);
    assert_eq!(Keyring::new(distinct(MAX_KEYS + 1)).err(), Some(KeyError::TooMany));
}

#[test]
fn a_key_is_read_from_every_usual_form() {
    let other = SealingKey::from_bytes(OTHER).text();
    assert!(other.contains('+') && other.contains('/'), "the alphabets must differ on it");
    let url_safe = other.replace('+', "-").replace('/', "_");
    for (text, key) in [
        (KEY_BASE64, KEY),
        (KEY_BASE64.trim_end_matches('='), KEY),
        (KEY_HEX, KEY),
        (&KEY_HEX.to_uppercase(), KEY),
        (&format!("  {KEY_HEX}\r\n"), KEY),
        (other.as_str(), OTHER),
        (&url_safe, OTHER),
        (url_safe.trim_end_matches('='), OTHER),
    ] {
        let read = SealingKey::parse(text).expect(text);
        assert_eq!((read.id(), read.text()), (id(key), SealingKey::from_bytes(key).text()));
    }
}

#[test]
fn anything_else_is_refused_without_being_repeated() {
    let plus = KEY_HEX.replace("80", "+8");
    for text in [
        "swordfish",
        &KEY_HEX[1..],
        &format!("{KEY_HEX}00"),
        &KEY_HEX.replace('f', "g"),
        plus.as_str(),
        &KEY_BASE64[1..],
        &KEY_BASE64.replace('=', "A"),
        &KEY_BASE64.replace('g', "!"),
        // Bits that stand for no byte: such a text is not what any tool makes of a key.
        &KEY_BASE64.replace("8=", "9="),
        &"é".repeat(22),
        &"é".repeat(32),
        &"A".repeat(1 << 20),
    ] {
        let refused = SealingKey::parse(text).expect_err(text);
        assert_eq!(refused, KeyError::Malformed { characters: text.chars().count() });
        let said = format!("{refused} {refused:?}");
        assert!(said.contains("openssl rand -base64 32"), "{said}");
        assert!(!said.contains(text), "{said}");
    }
    for text in ["", " \n"] {
        assert_eq!(SealingKey::parse(text).err(), Some(KeyError::NoKey));
    }
}

#[test]
fn nothing_that_is_printed_holds_a_key() {
    let key = SealingKey::from_bytes(KEY);
    assert_eq!(format!("{key:?}"), format!("SealingKey({KEY_ID})"));
    let shown = format!("{:#?} {:?}", keyring(&[KEY, OTHER]), keyring(&[KEY, OTHER]));
    for secret in [&KEY_HEX[..8], &KEY_BASE64[..8], "128, 129", "128,\n", "251", "fbfb"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn a_failure_of_the_store_says_which_value_and_whose_fault() {
    let wanted = id(KEY);
    for (error, refused) in [
        (OpenError::UnknownKey { wanted }, true),
        (OpenError::UnknownVersion(2), true),
        (OpenError::Damaged, false),
        (OpenError::NotSealed, false),
    ] {
        let of_store = error.of("the secrets of ep_1");
        assert_eq!(matches!(of_store, Error::Refused(_)), refused, "{of_store}");
        assert_eq!(matches!(of_store, Error::Damaged(_)), !refused, "{of_store}");
        let text = of_store.to_string();
        assert!(text.contains("ep_1") && text.contains(&error.to_string()), "{text}");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic_and_none_open(
        bytes in proptest::collection::vec(any::<u8>(), 0..120),
        prefix in 0..=1 + KEY_ID_BYTES + NONCE_BYTES,
        context in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let keys = keyring(&[KEY]);
        prop_assert!(keys.open(&context, &bytes).is_err());
        let mut likely = keys.seal(NONCE, &context, SECRET);
        likely.truncate(prefix);
        likely.extend(&bytes);
        prop_assert!(keys.open(&context, &likely).is_err());
        prop_assert_eq!(key_id_of(&likely).is_ok(), likely.len() >= SHORTEST && likely[0] == 1);
    }

    #[test]
    fn no_text_panics_as_a_key(text in prop_oneof![
        any::<String>(),
        "[A-Za-z0-9+/_-]{40,44}={0,2}",
        "[0-9a-fA-F]{60,66}",
    ]) {
        if let Ok(key) = SealingKey::parse(&text) {
            let again = SealingKey::parse(&key.text()).expect("its own text");
            prop_assert_eq!(again.id(), key.id());
        }
    }
}
