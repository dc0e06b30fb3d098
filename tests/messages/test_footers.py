"""The footer of marketing: added where the rendered message does not show it, and never twice."""

from __future__ import annotations

import contextlib
import string
import time

import pytest

from app.machine import effort
from app.machine.content import PartError
from app.machine.program import Facts
from app.machine.visible import shows_link
from app.messages import footers
from app.messages.footers import STOP_LINE, Footer, added
from app.providers.styling import inlined

URL = "https://app.example/u/abc_-1"
FOOTER = Footer(URL, "Acme & <Sons>", "1 Main Street\nSpringfield")
ADDRESS = "1 Main Street, Springfield"
LINK = f'<a href="{URL}">Out</a>'
STOP = Footer(URL, "Acme", takes_replies=True, asks_for_stop=True)


def html(markup: str) -> str:
    return added("email", {"html": markup, "text": "x"}, FOOTER)["html"]


def sms(text: str, footer: Footer) -> str:
    return added("sms", {"text": text}, footer)["text"]


def test_the_footer_stands_at_the_end_of_the_body_with_the_sender_escaped() -> None:
    shown = html("<html><body><p>Hi</p></body></html>")
    assert shown.startswith("<html><body><p>Hi</p><div style=")
    assert shown.endswith("Unsubscribe</a></div></body></html>")
    assert "Acme &amp; &lt;Sons&gt;<br>1 Main Street<br>Springfield<br><a " in shown
    assert html("<p>Hi</p>").startswith("<p>Hi</p><div style=")


def test_a_mail_that_shows_link_and_address_is_left_as_it_is() -> None:
    html = f"<p>1 MAIN&nbsp;Street<br><b>Spring</b>field {LINK}</p>"
    parts = {"subject": "s", "html": html, "text": f"{ADDRESS} ({URL})."}
    assert added("email", parts, FOOTER) == parts


def test_each_part_is_judged_by_itself() -> None:
    shown = f"<p>{ADDRESS} {LINK}</p>"
    text = added("email", {"html": shown, "text": "Hi\n"}, FOOTER)
    assert text["html"] == shown
    assert (
        text["text"]
        == f"Hi\n\n---\nAcme & <Sons>\n1 Main Street\nSpringfield\nUnsubscribe: {URL}\n"
    )
    text = added("email", {"subject": "s", "text": f"Out: {URL}2"}, FOOTER)
    assert text["text"].endswith(f"Unsubscribe: {URL}\n")
    assert "html" not in text
    assert (
        added("email", {"subject": "s"}, Footer(URL, "A"))["text"]
        == f"---\nA\nUnsubscribe: {URL}\n"
    )


def test_an_author_s_own_link_still_needs_the_sender_s_address() -> None:
    text = added("email", {"html": f"<p>{LINK}</p>", "text": f"Out: {URL}"}, FOOTER)
    assert text["html"].startswith(f"<p>{LINK}</p><div style=")
    assert text["html"].endswith("Acme &amp; &lt;Sons&gt;<br>1 Main Street<br>Springfield</div>")
    assert text["text"] == f"Out: {URL}\n\n---\nAcme & <Sons>\n1 Main Street\nSpringfield\n"
    unknown = {"html": f"<p>{LINK}</p>", "text": f"Out: {URL}"}
    assert added("email", unknown, Footer(URL, "Acme")) == unknown


@pytest.mark.parametrize(
    "hidden",
    [
        f"<!-- {ADDRESS} -->",
        f"<p style='display:none'>{ADDRESS}</p>",
        f"<style>.a{{font-size:0}}</style><p class=a>{ADDRESS}</p>",
    ],
)
def test_a_hidden_address_is_none(hidden: str) -> None:
    assert "Springfield</div>" in html(f"<p>{hidden}{LINK}</p>")


def test_an_author_s_own_address_is_not_written_twice() -> None:
    assert html(f"<p>{ADDRESS}</p>").count("Springfield") == 1


@pytest.mark.parametrize("more", ["2", "&x", "&x=1", "?x", "#x", "/x", ".x", "-x", "%20", "=", "~"])
def test_a_url_with_more_behind_it_is_another(more: str) -> None:
    text = added("email", {"text": f"{ADDRESS} {URL}{more}"}, FOOTER)
    assert text["text"].endswith(f"Unsubscribe: {URL}\n")
    asked = added("email", {"html": f"{ADDRESS} <a href='{URL}{more}'>x</a>", "text": "x"}, FOOTER)
    assert asked["html"].endswith("Unsubscribe</a></div>")


@pytest.mark.parametrize("around", ["{}", "<{}>", "({}).", "at {}, or", '"{}"', "{}!", "{}\nHi"])
def test_a_url_in_a_sentence_is_itself(around: str) -> None:
    text = f"{ADDRESS} {around.format(URL)}"
    assert added("email", {"text": text}, FOOTER)["text"] == text


WORST = (
    *("<p>", "<", "<a =", "<b hidden>", "&#", "<p a=b a=b ", "</p>x", "<b><i></b>", "<!--"),
    *("<p style='a:b'>x", "<div style=color:red>", "<a href=x>"),
)


@pytest.mark.alone
@pytest.mark.parametrize("piece", WORST)
@pytest.mark.parametrize("styles", ["", "p{a:b}" * 60, "*{a:b}" * 500])
def test_no_html_is_judged_on_the_loop_for_long(piece: str, styles: str) -> None:
    """It is begun anew where it may take longer. The budget is five milliseconds."""
    markup = (f"<style>{styles}</style>" * bool(styles) + piece * footers.LONGEST_HTML)[
        : footers.LONGEST_HTML
    ]
    began = time.thread_time()
    with contextlib.suppress(effort.Exceeded):
        effort.attempt(0.005, lambda: html(markup))
    assert time.thread_time() - began < 0.05


@pytest.mark.alone
@pytest.mark.parametrize("footer", [None, FOOTER])
@pytest.mark.parametrize("count", [10, 40, 200, 900])
def test_no_html_is_finished_on_the_loop_for_long(count: int, footer: Footer | None) -> None:
    """Each paragraph opens all that was never ended anew: a thousand tags make a quarter of a
    million elements."""
    opened = "".join(f"<b a={number}>" for number in range(count))
    markup = f"<style>p{{color:red}}</style><p>{opened}{'<p>x' * count}"
    content = {"subject": "s", "html": markup}
    began = time.thread_time()
    with contextlib.suppress(effort.Exceeded):
        made = effort.attempt(0.005, lambda: footers.finish("email", content, NO_FACTS, footer))
        assert footer or made.styled is None  # who sends it has little to do
    assert time.thread_time() - began < 0.05


@pytest.mark.alone
@pytest.mark.parametrize("piece", ["<b>x</b>", "<b a='", "</b>x"])
def test_what_is_left_as_it_was_written_is_not_weighed_on_the_loop(piece: str) -> None:
    """Each of its elements would be read for that, for each message: an eighth of a second."""
    some = piece * (50_000 // len(piece))
    markup = f"<style>p{{}}</style>{{% for one in (1..10) %}}{some}{{% endfor %}}"
    content = {"subject": "s", "text": "x", "html": markup}
    footers.finish("email", content, NO_FACTS, None)  # compiled
    began = time.thread_time()
    with contextlib.suppress(effort.Exceeded):
        made = effort.attempt(0.005, lambda: footers.finish("email", content, NO_FACTS, None))
        assert made.styled is None
    assert time.thread_time() - began < 0.05


NO_FACTS: Facts = dict.fromkeys(("contact", "workspace", "trigger", "run", "steps", "now"))
RULES = "".join(f".a{number}{{color:red}}" for number in range(50))


def test_what_takes_longer_is_finished_with_its_style_sheets() -> None:
    markup = f"<style>p{{color:red}}{RULES}</style>" + "<p>Hi</p>" * 300
    made = footers.finish("email", {"subject": "s", "html": markup}, NO_FACTS, None)
    assert (made.message.parts["html"], made.styled) == (markup, inlined(markup))
    few = {"subject": "s", "html": markup[:900]}
    assert footers.finish("email", few, NO_FACTS, None).styled is None
    assert footers.finish("sms", {"text": markup}, NO_FACTS, None).styled is None


@pytest.mark.parametrize("shown", ["", f"<p>{ADDRESS} {LINK}</p>"])
def test_the_style_sheets_of_marketing_are_written_into_its_elements_once(
    shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once to see what the mail shows, once with the footer, and once more for who sends it was
    three times for each recipient."""
    done: list[str] = []

    def noted(markup: str) -> str:
        done.append(markup)
        return inlined(markup)

    monkeypatch.setattr(footers, "inlined", noted)
    markup = f"<style>p{{color:red}}{RULES}</style><p>Hi</p>{shown}"
    for more in ("", "<p>Hi</p>" * 300):
        done.clear()
        content = {"subject": "s", "html": markup + more}
        made = footers.finish("email", content, NO_FACTS, FOOTER)
        assert done == [made.message.parts["html"]]
        assert made.styled == inlined(done[0])


@pytest.mark.alone
def test_marketing_whose_style_sheets_would_take_too_long_leaves_as_it_was_written() -> None:
    """Twelve kilobytes would be inlined for longer than a job may take, and the message would have
    failed for it."""
    opened = "".join(f"<b a={number}>" for number in range(700))
    markup = f"<style>p{{color:red}}</style><p>{opened}{'<p>x' * 1_200}"
    assert len(markup) < 13_000
    content = {"subject": "s", "html": markup}
    began = time.thread_time()
    with effort.limited(0.5):
        made = footers.finish("email", content, NO_FACTS, FOOTER)
    assert time.thread_time() - began < 0.5
    assert made.styled is None
    assert inlined(made.message.parts["html"]) == made.message.parts["html"]
    assert shows_link(made.message.parts["html"], URL)


def test_once_the_time_of_a_job_is_used_up_a_mail_leaves_as_it_was_written() -> None:
    markup = f"<style>p{{color:red}}{RULES}</style>" + "<p>Hi</p>" * 300
    with effort.limited(0.0):
        assert footers.styled(markup) == markup
        assert shows_link(html(markup), URL)
    assert footers.styled(markup) == inlined(markup)


# Opened anew in each paragraph after their own: with its style sheets written into its elements
# such a document is too large.
OPENED = "".join(f"<b a={number}>" for number in range(150))


@pytest.mark.parametrize(
    "markup",
    [
        f"<!-- {LINK} --><p>Hi</p>",
        f"<body><!-- </body> --><p>Hi {URL}</p>",
        "<body><p>Hi<!-- never closed </body>",
        "<body><div style='display:none'>Hi</body>",
        "<div hidden>Hi",
        "<p>Hi<style>p{color:red}",
        "<!doctype html><title>Hi",
        f"<style>a{{display:none}}</style>{LINK}",
        f"<style>.x{{visibility:hidden}}</style><p class=x>{LINK}</p>",
        f"<style>a{{display:none !important}}</style><p>{LINK}</p>",
        f"<style>a{{color:red}}{'b{color:red}' * 3_000}</style>{'<p>' * 2_500}{LINK}",
        f"<style>a{{display:none}}</style><p>{OPENED}{'<p>x' * 400}{LINK}",
    ],
)
def test_where_the_link_cannot_be_seen_the_footer_is_where_it_can(markup: str) -> None:
    shown = html(markup)
    assert shown.count("Unsubscribe</a></div>") == 1
    assert shows_link(shown, URL)


def test_a_style_sheet_hides_no_footer() -> None:
    hiding = "a,div{display:none!important;opacity:0!important}"
    from_sheet = inlined(html(f"<style>{hiding}</style><p>Hi</p>"))
    block = from_sheet[from_sheet.rindex("<div") :]
    assert "display: none" not in block.replace(":none", ": none")


@pytest.mark.parametrize(
    "markup",
    ["<body hidden>Hi", "<style>body{display:none}</style><body>Hi</body>"],
)
def test_a_mail_that_is_hidden_as_a_whole_is_not_sent(markup: str) -> None:
    with pytest.raises(PartError) as caught:
        html(markup)
    assert caught.value.part == "html"


def test_a_text_message_ends_with_stop_where_that_can_be_answered() -> None:
    assert sms("Spring \n", STOP) == f"Spring\n{STOP_LINE}"


@pytest.mark.parametrize(
    "text",
    [
        *("Hi. Reply STOP to end", "Text stop to quit", "STOP to opt-out", "Send 'STOP'"),
        *(
            "To opt out, reply STOP.",
            "Reply with “STOP” to unsubscribe",
            "Txt STOP2END",
            "Stop=end",
        ),
        *("Text HELP for help, STOP to cancel", "Reply: STOP", "Reply STOP to end these messages"),
    ],
)
def test_an_author_s_own_instruction_is_enough(text: str) -> None:
    assert sms(text, STOP) == text


@pytest.mark.parametrize(
    "text",
    [
        *("Don't STOP now", "Answer & stop by our store", "Send us stop signs", "STOP"),
        *(
            "Reply soon. Stop to shop at ours",
            "Text a friend. Stop smoking",
            "We never stop to quit",
        ),
        *("Send stop signs to all", "Respond: nonstop", "Non-stop 2 end", "Get your answer. STOP!"),
    ],
)
def test_a_sentence_with_stop_in_it_is_no_instruction(text: str) -> None:
    assert sms(text, STOP) == f"{text}\n{STOP_LINE}"


def test_a_value_does_not_stand_for_the_author_s_words() -> None:
    author = Footer(URL, "Acme", takes_replies=True, asks_for_stop=False)
    assert sms("Hi Reply STOP to win", author).endswith(f"\n{STOP_LINE}")


def test_elsewhere_it_ends_with_a_link() -> None:
    unheard = Footer(URL, "Acme", asks_for_stop=True)
    assert sms("Hi. Reply STOP to end", unheard).endswith(f"\nOpt out: {URL}")
    assert sms(f"Hi. Out: {URL}", unheard) == f"Hi. Out: {URL}"


def test_what_is_added_needs_no_longer_encoding() -> None:
    """3GPP TS 23.038, the basic alphabet: a character beyond it would halve what fits."""
    basic = set("@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡")
    basic |= set(string.ascii_letters)
    base64url = string.ascii_letters + string.digits + "-_"
    unheard = Footer(f"https://app.example/u/{base64url}", "Acme 🎉")
    assert set(sms("", STOP)) | set(sms("", unheard)) <= basic


def test_whatsapp_is_left_as_it_is() -> None:
    for text in ({"text": "Hi"}, {"contentSid": "HX", "variables": "{}"}):
        assert added("whatsapp", text, FOOTER) == text
