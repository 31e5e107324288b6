//! The store on files and on media that fail.

mod asks;
mod audit;
mod codec;
mod crash;
mod file;
mod full;
mod history;
mod medium;
mod restore;
mod rollups;
mod upgrade;
