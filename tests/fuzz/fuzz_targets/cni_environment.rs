#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fipd::fuzz::run("cni_environment", bytes));
