//! The store on files and on media that fail.

mod file;
