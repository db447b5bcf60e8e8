"""Replace measured text between two marks on a page, atomically."""


def between(page, name, text):
    """A page with a text between the marks of that name."""
    begin, end = (f"<!-- {name}: {edge} -->" for edge in ("begin", "end"))
    before, rest = page.split(begin)
    return f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}"


def put(path, **texts):
    """Write texts between their marks into a file; ``glue_table`` goes between those of "glue table"."""
    page = path.read_text(encoding="utf-8")
    for name, text in texts.items():
        page = between(page, name.replace("_", " "), text)
    write_whole(path, page)


def write_whole(path, text):
    """Write a file whole or not at all."""
    scratch = path.with_name(f".{path.name}.partial")
    scratch.write_text(text, encoding="utf-8")
    scratch.rename(path)
