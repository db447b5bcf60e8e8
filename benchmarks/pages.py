"""Replace the text between two marks on a page, atomically."""


def between(page, name, text):
    """Return a page with a text inserted between the marks with this name."""
    begin, end = (f"<!-- {name}: {edge} -->" for edge in ("begin", "end"))
    before, rest = page.split(begin)
    return f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}"


def put(path, **texts):
    """Write texts between their marks in a file; the marks of ``glue_table`` are named "glue table"."""
    page = path.read_text(encoding="utf-8")
    for name, text in texts.items():
        page = between(page, name.replace("_", " "), text)
    write_whole(path, page)


def write_whole(path, text):
    """Write a file atomically."""
    scratch = path.with_name(f".{path.name}.partial")
    scratch.write_text(text, encoding="utf-8")
    scratch.rename(path)
