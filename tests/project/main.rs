//! The project itself: texts that must be true, files in order, lists of faults that fit.

mod documents;
mod editors;
mod extending;
mod faults;
mod names;
mod tidy;
mod words;
