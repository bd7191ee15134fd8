//! The report: a record as one page for a browser.
//!
//! In: the JSON of a record. Out: HTML with its style, its script and the record inside, which
//! loads nothing. It must not know what a record contains: the script reads that.

/// A page that shows a record.
pub fn page(record: &str) -> String {
    // In a script element, `<` must not begin a tag.
    let data = record.trim_end().replace('<', "\\u003c");
    let mut page = String::new();
    for part in include_str!("page.html").split_inclusive("-->") {
        let Some((before, name)) = part.strip_suffix("-->").and_then(|part| part.split_once("<!--")) else {
            page += part;
            continue;
        };
        page += before;
        page += match name {
            "style" => include_str!("style.css"),
            "data" => &data,
            "model" => include_str!("model.js"),
            "view" => include_str!("view.js"),
            "numbers" => include_str!("numbers.js"),
            "panels" => include_str!("panels.js"),
            _ => "",
        };
    }
    page
}

#[cfg(test)]
mod tests {
    use super::page;

    #[test]
    fn a_page_loads_nothing_and_holds_the_record() {
        let page = page("{\"text\":\"a </script> b\"}\n");
        assert!(page.contains("default-src 'none'"));
        assert!(page.contains("{\"text\":\"a \\u003c/script> b\"}"));
        assert_eq!(page.matches("</script>").count(), page.matches("<script").count());
        for word in ["src=", "href=", "fetch(", "import ", "@import", "url(", "XMLHttpRequest", "http:", "https:"] {
            assert!(!page.contains(word), "{word}");
        }
        let code = include_str!("model.js").len() + include_str!("view.js").len() + include_str!("panels.js").len();
        let code = code + include_str!("numbers.js").len();
        assert!(code < 45_000, "{code} bytes of script");
    }
}
