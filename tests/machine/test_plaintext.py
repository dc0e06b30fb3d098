"""HTML as somebody reads it who sees only text."""

from __future__ import annotations

import pytest

from app.machine.plaintext import plain_text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("", ""),
        ("just words", "just words"),
        ("<p>One</p><p>Two</p>", "One\n\nTwo"),
        ("<h1>Hello</h1><div>there</div><div>you</div>", "Hello\n\nthere\n\nyou"),
        ("a<br>b<BR/>c", "a\nb\nc"),
        ("<p>  many \n\t spaces&nbsp; here </p>", "many spaces here"),
        ("<b>Bold</b> and <i>bent</i>.", "Bold and bent."),
        ("&lt;b&gt; &amp; &euro;5 &#39;x&#39;", "<b> & €5 'x'"),
        ("<ul><li>one</li><li>two</li></ul>after", "- one\n- two\n\nafter"),
        ("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>", "a b\n\nc"),
        ("over<hr>under", "over\n\n---\n\nunder"),
        ('<a href="https://x.test/?a=1&amp;b=2">Open</a>', "Open (https://x.test/?a=1&b=2)"),
        ("<A HREF='https://x.test'>https://x.test</A>", "https://x.test"),
        ('<a href="mailto:a@x.test">a@x.test</a>', "a@x.test"),
        ('<a href="https://x.test"><img src=x alt="Our shop"></a>', "Our shop (https://x.test)"),
        ('<a href="https://x.test"><img src=x></a>', "https://x.test"),
        ('<a href="#top">Up</a> <a>bare</a> <a href="javascript:x()">no</a>', "Up bare no"),
        ('<p title="a > b">kept</p>', "kept"),
        ("<p title=it's>kept</p>", "kept"),
        ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
        ("a<!-- <p>hidden</p> -->b<!---->c", "abc"),
        ("a<!-- one <!-- two -->b", "ab"),
        ("seen<!-- never closed", "seen"),
        ("<style>p { color: red }</style>seen", "seen"),
        ("<SCRIPT>if (a < b) { '<p>' }</SCRIPT >seen", "seen"),
        ("<head><title>Not this</title></head><body>This</body>", "This"),
        ("seen<style>never closed", "seen"),
        ("<!DOCTYPE html><html><body>x</body></html>", "x"),
        ("<![if mso]>x<![endif]>", "x"),
    ],
)
def test_markup_becomes_text(markup: str, text: str) -> None:
    # Blank lines between blocks are a matter of taste; the lines are not.
    def lines(text: str) -> list[str]:
        return [line for line in text.split("\n") if line]

    assert lines(plain_text(markup)) == lines(text)


def test_paragraphs_are_one_blank_line_apart() -> None:
    assert plain_text("<div><p>One</p></div>\n\n<table><tr><td><p>Two</p>") == "One\n\nTwo"


@pytest.mark.timeout(10)  # no request may hang longer; what is quadratic takes more
@pytest.mark.parametrize(
    "piece",
    [
        "<", "<!--", "-->", "<a ", "<a href=x>", "</a>", '<a "', "<a '", "a=", "&", "&#", "<p>",
        "<style>", "<![", "</", " ", "\n", "<a href=", '="', "<body ",
    ],
)  # fmt: skip
def test_hostile_markup_takes_no_longer_than_its_length_allows(piece: str) -> None:
    """A quadratic reading of a quarter of a megabyte takes minutes."""
    plain_text(f"<a {piece}" + piece * (262_144 // len(piece)))
    plain_text(piece * (262_144 // len(piece)))
