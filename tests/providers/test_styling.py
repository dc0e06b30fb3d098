"""Style sheets in elements, and documents that were made to hurt whoever does that."""

from __future__ import annotations

import socket
import time
from email import message_from_bytes, policy

import pytest

from app.messages.footers import MOST_INLINED
from app.providers.mime import Sender, compose
from app.providers.styling import LONGEST, MOST_TAGS, inlined, weighed
from tests.receivers import letter, text_of

SHEET = "<style>p{color:red} a:hover{color:green} @media print{p{color:black}}</style>"


def test_a_style_sheet_is_written_into_the_elements_it_names() -> None:
    assert '<p style="color: red;">Hi</p>' in inlined(f"<html>{SHEET}<body><p>Hi</p>")


def test_what_an_element_cannot_say_stays_in_the_style_sheet() -> None:
    made = inlined(f"<html>{SHEET}<body><p>Hi</p>")
    assert "a:hover" in made
    assert "@media print" in made
    assert made.count("color:red") == 0


def test_an_elements_own_style_wins() -> None:
    assert 'style="color: blue"' in inlined(f'{SHEET}<p style="color: blue">Hi</p>')


@pytest.mark.parametrize("markup", ["<p>Hi", "", "<p style='x'>&nbsp;</p>", "plain & simple"])
def test_without_a_style_sheet_not_a_character_changes(markup: str) -> None:
    assert inlined(markup) == markup


def test_a_mail_is_sent_with_its_styles_in_its_elements_and_its_text_without_them() -> None:
    sent = compose(
        letter(html=f"{SHEET}<p>Grüße</p>", preheader="Soon"), Sender.parse("a@acme.test")
    )
    mail = message_from_bytes(sent.encode(), policy=policy.default)
    html, text = (text_of(mail, part) for part in ("html", "plain"))
    assert '<p style="color: red;">Grüße</p>' in html
    assert html.index("Soon") < html.index("Grüße")
    assert text.strip() == "Grüße"


def test_no_style_sheet_is_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mail.css"
        made = inlined(
            f'{SHEET}<link rel="stylesheet" href="{url}"><link rel="stylesheet"'
            f' href="file:///etc/passwd"><style>@import "{url}";</style><p>Hi</p>'
        )
        with pytest.raises(TimeoutError):
            listener.accept()
    assert "root:" not in made
    assert f'href="{url}"' in made


ENOUGH = MOST_TAGS // 2
HOSTILE = {
    "nested beyond the limit": SHEET + "<b>" * 100_000,
    "nested up to the limit": SHEET + "<div>" * (MOST_TAGS - 1) + "x",
    "tables up to the limit": SHEET + "<table><tr><td>" * ((MOST_TAGS - 1) // 3),
    "hidden in what is no comment": f"{SHEET}<!-->{'<i>' * 100_000}-->",
    "formatting that is opened again in every paragraph": SHEET
    + "".join(f"<b a={i}>" for i in range(ENOUGH - 1))
    + "<p>" * ENOUGH,
    "formatting that is opened again in every paragraph after the first": f"{SHEET}<p>"
    + "".join(f"<b a={i}>" for i in range(ENOUGH - 1))
    + "<p>x" * ENOUGH,
    "declarations times elements": "<style>"
    + "".join(f"*{{p{i}:x}}" for i in range(5_000))
    + "</style>"
    + "<i></i>" * 1_500,
    "siblings of siblings": "<style>"
    + ("*~" * 50 + "p{color:red}") * 10
    + "</style>"
    + "<p>" * 1_500,
    "a sheet without an end": "<style>" + "a{" * 50_000,
    "brackets without an end": "<style>p{color:" + "(" * 100_000,
    "no sheet at all": "<style>}}}{{{;;;<p>x",
    "too long": SHEET + "x" * LONGEST,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_no_document_costs_much(what: str) -> None:
    """A crash here would take the worker with it."""
    began = time.process_time()
    made = inlined(HOSTILE[what])
    assert time.process_time() - began < 3
    assert len(made) <= max(len(HOSTILE[what]), LONGEST)


def weight(markup: str) -> int:
    weight = weighed(markup)
    assert weight is not None
    return weight


def test_an_ordinary_mail_is_written_on_the_loop() -> None:
    """Sixty elements and six hundred characters of style sheets take a tenth of a millisecond."""
    rules = "".join(f".c{number:02}{{color:#333333;margin:0}}" for number in range(20))[:600]
    paragraph = '<p class="c01">Hello <b style="color: red">Ada</b></p>'
    mail = f"<style>{rules}</style>{paragraph * 29}"
    assert (mail.count("<"), weight(mail)) == (118, 118 * (len(rules) + len("<style></style")))
    assert weight(mail) < MOST_INLINED / 3


FEW = "<style>p{color:red}</style><p>"
RULE = len("<style>p{color:red}</style")
ENDED = {
    "at once": "<b>x</b>",
    "in capitals": "<B>x</b >",
    "with attributes": """<a href="https://a.example/?a=b&c" title='"' x y = z/>x</a>""",
    "within others": "<strong><a href=x><i>x</i><br><img src=x alt='>'>y</a></strong>",
    "with a span within": "<em><span style='color:red'>x</span></em>",
}
LEFT = {
    "at all": "<b a={}>x",
    "but in a comment": "<b a={}><!--</b>-->",
    "but in an attribute": "<b a={}><p title='</b>'>",
    "but in its own attribute": """<b a{}"b="c>x</b>" d>""",
    "but in an attribute without an end": "<b a={} b='>x</b>'>",
    "but in what is not read": "<b a={}><style></b></style>",
    "but by another name": "<b a={}>x</bb>",
    "but by another letter": "<b a={}>x</b\xa0>",
    "after its paragraph": "<b a={}><p>x</b>",
    "behind another that is not": "<b a={}><i>x</b>",
    "but with white space that is none": "<b a={}>x</b\x0b>",
}


@pytest.mark.parametrize("how", ENDED)
def test_elements_that_are_ended_weigh_as_they_are(how: str) -> None:
    markup = FEW + ENDED[how] * 30
    assert weight(markup) == markup.count("<") * RULE


@pytest.mark.parametrize("how", LEFT)
def test_elements_that_are_not_ended_weigh_in_each_that_follows(how: str) -> None:
    opened = "".join(LEFT[how].format(number) for number in range(40))
    markup = f"{FEW}{opened}{'<p>x' * 40}"
    assert weight(markup) >= 30 * markup.count("<") * RULE
    assert inlined(markup).count("<") < weight(markup) / RULE


def test_of_elements_that_are_alike_three_are_opened_anew_and_of_links_one() -> None:
    for opened, most in (("<b>x", 3), ("<a href={}>x", 1)):
        tags = "".join(opened.format(number) for number in range(20))
        markup = f"{FEW}{tags}{'<p>x' * 20}"
        assert weight(markup) // markup.count("<") // RULE == 1 + most
        made = inlined(markup)
        assert made.replace("<body", "").count(opened[:2]) == 20 + 20 * most
