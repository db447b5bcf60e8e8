"""`kermit trace` through the entry point: inputs, layouts and formats."""

import gzip
import json
import re
from xml.etree import ElementTree

import pytest

LIMIT = ("--set", "max_tokens=5")
STRANGE = b"""{"start": [[], []], "start_text": [[], []], "open_slots": [1, 2], "names": ["en", "de"],
 "rounds": [[{"slot": 1, "token_id": 7, "text": "a", "log_prob": "likely"}]]}""".replace(b"\n", b"")


def shown(svg: str) -> set[str]:
    elements = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return {element[0].tail if len(element) else element.text for element in elements}


@pytest.mark.parametrize("layout", ["rounds", "tree"])
@pytest.mark.parametrize(
    "what",
    [
        ("--to", "de", "A red bike"),
        ("--infill", "A ____ bike"),
        ("--x", "A ...", "--y", "... Rad"),
    ],
    ids=["translate", "infill", "complete"],
)
def test_each_kind_of_decode_has_a_picture(ask, tmp_path, what, layout):
    target = tmp_path / "decode.svg"
    ask("trace", *what, *LIMIT, "--layout", layout, "--output", target)
    words = shown(target.read_text(encoding="utf-8"))
    assert {"A", "English"} <= words
    (record,) = map(json.loads, ask("trace", *what, *LIMIT, "--format", "json").out.splitlines())
    inserted = [insertion for insertions in record["trace"]["rounds"] for insertion in insertions]
    assert 0 < len(inserted) <= 5
    for insertion in inserted:
        if insertion["text"].strip().isprintable() and insertion["text"].strip():
            assert insertion["text"].strip() in words


def test_a_saved_trace_gives_the_same_picture_as_the_decode_itself(ask, kermit, tmp_path):
    asked = ("--to", "de", "A red bike", *LIMIT)
    direct = ask("trace", *asked, "-f", "svg").out
    saved = tmp_path / "saved.jsonl"
    ask("translate", *asked, "--trace", "--json", "--output", saved)
    assert kermit("trace", "--from", saved, "-f", "svg").out == direct
    assert kermit("trace", "--from", "-", "-f", "svg", stdin=saved.read_bytes()).out == direct
    again = ask("trace", *asked, "-f", "json", "--layout", "tree").out
    assert kermit("trace", "--from", "-", "-f", "svg", stdin=again.encode()).out == direct


def test_the_rounds_as_text_equal_those_of_the_generating_command(ask):
    asked = ("--to", "de", "A red bike", *LIMIT)
    rounds = ask("trace", *asked).out
    assert ask("translate", *asked, "--trace").out.startswith(rounds)
    tree = ask("trace", *asked, "--layout", "tree").out
    assert re.match(r"de\n  1  \S", tree)
    assert len(tree.splitlines()) <= 6


def test_a_page_holds_several_decodes_and_a_picture_one(ask, kermit, folder, tmp_path):
    target = tmp_path / "decodes.html"
    ask("trace", "--to", "de", *LIMIT, "--output", target, stdin=b"A man.\n<script>alert(1)</script>\n")
    document = target.read_text(encoding="utf-8")
    assert document.count("<svg") == 2
    assert "<script" not in document
    done = kermit("trace", "--to", "de", "A", "B", *LIMIT, "--format", "svg", "--model", folder)
    assert (done.code, done.out) == (2, "")
    assert "choose --format html" in done.err


def test_a_text_that_is_too_long_is_an_error_that_names_its_option(kermit, folder):
    for option in ("--infill", "--x"):
        done = kermit("trace", option, "red ____ " * 90, "--model", folder)
        assert done.code == 2
        assert re.match(r"error: (--infill|the pair): \d+ tokens", done.err)


def test_each_option_changes_the_decode(ask, tmp_path):
    asked = ("trace", "--to", "de", "A red bike", *LIMIT, "--set", "termination_penalty=50", "-f", "json")

    def rounds(outcome):
        return [len(insertions) for insertions in json.loads(outcome.out)["trace"]["rounds"] if insertions]

    assert rounds(ask(*asked, "--decoding", "serial")) == [1, 1, 1, 1, 1]
    assert max(rounds(ask(*asked, "--decoding", "parallel"))) > 1
    assert sum(rounds(ask(*asked, "--set", "max_tokens=3"))) == 3
    german = ask("trace", "--infill", "Ein ____ Rad", "--side", "de", *LIMIT).out
    assert german.startswith("de\n")
    texts = tmp_path / "texts.txt"
    texts.write_text("A red bike\n", encoding="utf-8")
    assert ask(*asked[:3], "--input", texts, *asked[4:]).out == ask(*asked).out


def test_a_gzipped_output_has_the_format_of_its_name(ask, tmp_path):
    target = tmp_path / "decode.svg.gz"
    ask("trace", "--to", "de", "A red bike", *LIMIT, "--output", target)
    assert "German" in shown(gzip.decompress(target.read_bytes()).decode())


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_png_and_pdf_are_written_to_files(ask, kermit, folder, tmp_path, suffix, magic):
    target = tmp_path / f"decode.{suffix}"
    ask("trace", "--to", "de", "A red bike", *LIMIT, "--title", "Mine", "--output", target)
    assert target.read_bytes().startswith(magic)
    for more, message in (
        ((), f"{suffix.upper()} cannot be written to stdout; give a file with --output decode.{suffix}"),
        (("--output", "/nowhere/decode"), "No such file or directory"),
        (("--output", target, "--layout", "animated"), "--layout animated applies only to SVG and HTML"),
    ):
        done = kermit("trace", "--to", "de", "A", *LIMIT, "-f", suffix, *more, "--model", folder)
        assert done.code == 2
        assert message in " ".join(done.err.split())


def test_an_animation_is_an_svg_or_a_page(ask, kermit, folder):
    asked = ("trace", "--to", "de", "A red bike", *LIMIT, "--layout", "animated")
    assert "@keyframes" in ask(*asked, "-f", "svg").out
    assert "@keyframes" in ask(*asked, "-f", "html", "--title", "Mine").out
    for wrong in (("-f", "text"), ("-f", "json"), ("-f", "text", "--layout", "rounds", "--title", "Mine")):
        assert kermit(*asked, *wrong, "--model", folder).code == 2


def test_samples_depend_on_the_seed(ask):
    asked = ("trace", "--x", "A ...", "--y", "... Rad", *LIMIT)
    assert ask(*asked, "--seed", 3).out == ask(*asked, "--seed", 3).out
    assert len({ask(*asked, "--seed", seed).out for seed in range(3)}) > 1
    drawn = ("trace", "--to", "de", "A man", *LIMIT, "--set", "temperature=2")
    assert len({ask(*drawn, "--seed", seed).out for seed in range(3)}) > 1


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        ((), b"", "give exactly one of --to, --infill, --x or --y, --from; got none"),
        (("--to", "de", "--infill", "A ____"), b"", "got --to and --infill"),
        (("--infill", "A ____", "text"), b"", "--to LANGUAGE"),
        (("--from", "/nowhere"), b"", "--from /nowhere does not exist"),
        (("--from", "-"), b"\n{\n", "stdin:2: "),
        (("--from", "-"), b"[]\n", "stdin:1: "),
        (
            ("--from", "-"),
            b'{"x": "A man"}\n',
            "stdin:1: not a trace written by --json --trace: the key 'start' is missing",
        ),
        (
            ("--from", "-"),
            STRANGE,
            "stdin:1: not a trace written by --json --trace: could not convert string to float",
        ),
        (("--from", "-", "--layout", "spiral"), b"", "spiral"),
        (("--from", "-"), b"", "no text to trace"),
        (("--from", "-", "--model", "any"), b"", "--model has no effect with --from"),
        (("--from", "-", "--set", "top_k=1"), b"", "--set has no effect with --from"),
        (("--to", "de", "A", "--side", "de"), b"", "--side applies only to --infill"),
        (("--to", "de", "A", "--seed", "1"), b"", "--seed has no effect"),
        (("--infill", "A man ___"), b"", "--infill: no blank to fill; write a blank as four underscores, ____"),
        (("--to", "de", "A", "--output", "decode.doc"), b"", "--output decode.doc: unknown suffix"),
    ],
)
def test_wrong_input_to_trace_is_an_error(kermit, arguments, stdin, message):
    done = kermit("trace", *arguments, stdin=stdin)
    assert (done.code, done.out) == (2, "")
    assert message in " ".join(done.err.split())
