"""Liquid prints what senders sent, reads paths as all else does, and cannot be made to hang."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.machine import document, path, template
from app.machine.liquid.filters import FILTERS
from app.machine.template import RenderError, TemplateError
from tests.examples import examples

NOW = datetime(2026, 11, 2, 10, 20, 30, 123456, UTC)
TRIGGER = document.parse(
    rb"""{
    "total": 1.10, "minus": -0, "big": 123456789012345678901, "power": 1E2, "inf": 1e400,
    "yes": true, "no": false, "null": null, "empty": "", "price": "83.40", "index": 1,
    "items": {"size": "the key", "first": 1, "last": 2, "and": 3},
    "list": [{"name": "Mug", "qty": 2}, {"name": "Tea", "qty": 4}], "none": [],
    "size": 7, "first": "F", "or": "OR", "contains": {"and": "deep"}, "if": "IF", "true": "TRUE",
    "$id": "dollar", "2fa": "two", "0": "zero", "data-x": "hyphen", "@type": "at", "xml:lang": "cs",
    "any key": "space", "a.b": "dot", "q\"k": "quote", "]": "bracket", "\u017elu\u0165": "unicode",
    "liquid": "{{7*7}}{% for %}{{secrets}}", "html": "<b onload=\"x\">'&", "lines": "a\r\nb",
    "broken": "a\u0000b\ud800c", "word": "Tea & Cake"
    }"""
)
FACTS = {
    "trigger": TRIGGER,
    "contact": {"firstName": "Ann", "email": None},
    "steps": {"steps[0].cases[1]": {"status": "SENT"}},
    "now": NOW,
}


def text(source: str, **options: Any) -> str:
    return template.parse(source, **options).render(FACTS).text


def missing(source: str) -> Sequence[str]:
    return template.parse(source).render(FACTS).missing


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        ("{{trigger.total}}", "1.10"),
        ("{{trigger.minus}}", "-0"),
        ("{{trigger.big}}", "123456789012345678901"),
        ("{{trigger.power}}", "1E2"),
        ("{{trigger.inf}}", "1e400"),
        ("{{trigger.yes}} {{trigger.no}}", "true false"),
        ("[{{trigger.null}}{{trigger.nowhere}}{{trigger.empty}}]", "[]"),
        ("{{trigger.list}}", '[{"name":"Mug","qty":2},{"name":"Tea","qty":4}]'),
        ("{{trigger.contains}}", '{"and":"deep"}'),
        ("{{trigger.broken}}", "a\ufffdb\ufffdc"),
        ("{{trigger.broken | append: '!'}}", "a\ufffdb\ufffdc!"),
        ("{{trigger.broken | url_encode}}", "a%EF%BF%BDb%EF%BF%BDc"),
        ("{{now}}", "2026-11-02T10:20:30.123Z"),
        ("{{trigger.liquid}}", "{{7*7}}{% for %}{{secrets}}"),
        ("{{'{{7*7'}}", "{{7*7"),
        ("{{trigger.lines}}", "a\r\nb"),
        ("a\r\nb", "a\r\nb"),
    ],
)
def test_a_value_prints_as_it_was_sent(source: str, printed: str) -> None:
    assert text(source) == printed


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        ("{% if trigger.total > 1 and trigger.big > 5 %}yes{% endif %}", "yes"),
        ("{% if trigger.total == 1.1 and trigger.inf > trigger.big %}yes{% endif %}", "yes"),
        ("{% if trigger.nowhere %}yes{% else %}no{% endif %}", "no"),
        ("{% if trigger.nowhere > 5 or trigger.null == nil %}yes{% endif %}", "yes"),
        ("{% if trigger.word contains 'Cake' %}yes{% endif %}", "yes"),
        ("{% if trigger.contains contains 'and' %}yes{% endif %}", "yes"),
        ("{% unless trigger.none == empty %}full{% else %}empty{% endunless %}", "empty"),
        ("{% case trigger.or %}{% when 'a', 'OR' %}hit{% else %}miss{% endcase %}", "hit"),
        ("{{ trigger.total | times: 2 }}", "2.2"),
        ("{{ trigger.big | plus: 1 }}", "123456789012345678902"),
        ("{{ trigger.price | times: 2 }}", "166.8"),
        ("{{ trigger.total | at_least: 1 }}", "1.10"),
        ("{{ trigger.list | map: 'qty' | sum }}", "6"),
        ("{{ 10 | divided_by: 4 }} {{ 10 | divided_by: 4.0 | round: 1 }}", "2 2.5"),
    ],
)
def test_literals_count_and_compare_as_numbers(source: str, printed: str) -> None:
    assert text(source) == printed


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        ("{% for item in trigger.list %}{{item.qty}}×{{item.name}};{% endfor %}", "2×Mug;4×Tea;"),
        ("{% for i in (1..trigger.index) %}{{i}}{% endfor %}", "1"),
        ("{% for i in (1..9) reversed limit:2 offset:1 %}{{i}}{% endfor %}", "32"),
        ("{% for pair in trigger.contains %}{{pair[0]}}={{pair.last}}{% endfor %}", "and=deep"),
        ("{% for x in trigger.none %}{% else %}nothing{% endfor %}", "nothing"),
        ("{% for x in trigger.nowhere %}x{% endfor %}", ""),
        ("{% for i in (1..9) %}{% if i == 3 %}{% break %}{% endif %}{{i}}{% endfor %}", "12"),
        ("{% for i in (1..3) %}{% if i == 2 %}{% continue %}{% endif %}{{i}}{% endfor %}", "13"),
        ("{% for i in (1..2) %}{{forloop.index}}{{forloop.last}} {% endfor %}", "1false 2true "),
        ("{% assign a = trigger.word | upcase %}{{a}}", "TEA & CAKE"),
        ("{% capture a %}<{{trigger.word}}>{% endcapture %}{{a}}{{a}}", "<Tea & Cake>" * 2),
        ("{% raw %}{{ trigger.x | huh }}{% if %}{% endraw %}", "{{ trigger.x | huh }}{% if %}"),
        ("a{% comment %}{{ ( }}{% comment %}{% endcomment %}'{% endcomment %}b", "ab"),
        ("a{% # don't (mind) this %}b", "ab"),
        ("  {%- if true -%}  x  {%- endif -%}  |{{- 1 -}}  |", "x|1|"),
        (" {%- raw -%} x {%- endraw -%} |", " x |"),
        (" {%- comment -%} x {%- endcomment -%} |", "|"),
        ("}} %} { { x { % {", "}} %} { { x { % {"),
    ],
)
def test_tags_work(source: str, printed: str) -> None:
    assert text(source) == printed


# --- paths ----------------------------------------------------------------------------------------


ODD_KEYS = [
    *("size", "first", "last", "and", "or", "contains", "true", "nil", "if", "in", "limit"),
    *("$id", "@type", "xml:lang", "2fa", "0", "1.5", "-", "a-", "-a", "data-x", "a%", "a/b"),
    *("any key", "a.b", "]", "[0]", 'q"k', "it's", "", " ", "a|b", "a,b", "a:", "a=b", "a<b"),
    *("a!=b", "wow!", "a(b)", "{", "}", "a}}b", "%}", "{{a}}", "\n", "\\", "\0", "\ud800"),
    *("a#b", "žluť", "Größe", "__class__", "constructor", "trigger", "forloop", "now"),
]


@pytest.mark.parametrize("key", ODD_KEYS)
def test_every_path_reads_the_same_here_as_elsewhere(key: str) -> None:
    facts = {"trigger": {key: {key: [{key: "found"}]}}}
    where = path.Path(("trigger", key, key, 0, key))
    source = f"{{{{{where}}}}} {{% if {where}=='found' %}}{{{{ {where}|upcase }}}}{{% endif %}}"
    parsed = template.parse(source)
    assert parsed.render(facts) == template.Rendered("found FOUND", ())
    assert parsed.paths == (where.segments,)


@pytest.mark.parametrize(
    "text", ["$id", "@type", "a!b", "a'b", 'a"b', "xml:lang", "a%b{c", "2fa.0"]
)
def test_paths_of_bare_keys_are_read_as_they_are_written(text: str) -> None:
    segments = path.parse(f"trigger.{text}").segments
    assert template.parse(f"{{{{trigger.{text}}}}}").paths == (segments,)


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        ("{{trigger.items.size}} {{trigger.items.first}} {{trigger.items.and}}", "the key 1 3"),
        ("{{trigger.contains.and}}", "deep"),
        ("{{trigger['any key']}}{{trigger[\"a.b\"]}}", "spacedot"),
        ("{{trigger.list[1].name}}{{ trigger.list[ 0 ]['name'] }}", "TeaMug"),
        ("{{trigger.list[trigger.index].name}}", "Tea"),
        ("{{ trigger . total }}", "1.10"),
        ("{{trigger.word|upcase}}{{trigger.total|append:trigger.or}}", "TEA & CAKE1.10OR"),
        ("{%if trigger.index==1%}{{trigger.xml:lang}}{%endif%}", "cs"),
        ('{{ steps["steps[0].cases[1]"].status }}', "SENT"),
        ("{% assign item = trigger.items %}{{item.size}}", "the key"),
        ("{{ 'trigger.items.size' }}{{ \"trigger.and\" }}", "trigger.items.sizetrigger.and"),
    ],
)
def test_keys_that_liquid_reserves_are_keys(source: str, printed: str) -> None:
    assert text(source) == printed


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        ("{{trigger.list.size}}{{trigger.list.first.name}}{{trigger.list.last.name}}", "2MugTea"),
        ("{{trigger.none.size}}[{{trigger.none.first}}]", "0[]"),
        ("{{trigger.word.size}}", "10"),
    ],
)
def test_arrays_keep_the_properties_of_liquid(source: str, printed: str) -> None:
    assert text(source) == printed


@pytest.mark.parametrize(
    "where",
    [
        *("trigger.nowhere", 'trigger.nowhere.deep[3]["x y"]', "trigger.list[5]"),
        *("trigger.__class__", "trigger.total.real", "trigger.word.upper", "trigger.contains.size"),
        *("trigger.word[0]", "trigger.list.0", "trigger.items[0]", "trigger.null.x", "run.id"),
    ],
)
def test_what_leads_nowhere_prints_nothing_and_is_noted(where: str) -> None:
    rendered = template.parse(f"[{{{{ {where} }}}}]").render(FACTS)
    assert rendered == template.Rendered("[]", (where,))


@pytest.mark.parametrize(
    ("source", "printed", "noted"),
    [
        ("{{trigger.x}}{{trigger.x}}{{trigger.y}}", "", ("trigger.x", "trigger.y")),
        ("{{trigger.x | default: 'there'}}", "there", ()),
        ("{{trigger.x | upcase | default: 'there'}}", "there", ()),
        ("{{trigger.x | default: trigger.y}}", "", ("trigger.y",)),
        ("{{trigger.x | default: trigger.y | default: 'z'}}", "z", ()),
        ("{{trigger.or | default: trigger.y}}", "OR", ()),
        ("{{trigger.or | append: trigger.y}}", "OR", ("trigger.y",)),
        ("{{trigger.x | plus: 1}}", "1", ("trigger.x",)),
        ("{{trigger.null}}{{contact.email}}{{trigger.empty}}", "", ()),
        ("{% if trigger.x %}{{trigger.x}}{% endif %}", "", ()),
        ("{% assign a = trigger.x %}{{a}}", "", ("trigger.x",)),
        ("{% for i in trigger.list %}{{i.x}}{% endfor %}", "", ("i.x",)),
        ("{{trigger.list[trigger.yes]}}", "", ("trigger.list.true",)),
        ("{% capture a %}{{trigger.x}}{% endcapture %}", "", ("trigger.x",)),
    ],
)
def test_only_what_was_printed_for_nothing_is_noted(
    source: str, printed: str, noted: tuple[str, ...]
) -> None:
    assert template.parse(source).render(FACTS) == template.Rendered(printed, noted)


def test_a_template_tells_what_it_reads() -> None:
    source = """{{contact.firstName | default: trigger.name}} {{trigger.items[0].size}}
    {% assign a = trigger["any key"] %}{{a.b}}{% for i in trigger.list %}{{i.x}}{{forloop.index}}
    {% endfor %}{{trigger.list[trigger.index].name}}{{contact.firstName}}
    {% raw %}{{no}}{% endraw %}"""
    assert template.parse(source).paths == (
        ("contact", "firstName"),
        ("trigger", "name"),
        ("trigger", "items", 0, "size"),
        ("trigger", "any key"),
        ("trigger", "list"),
        ("trigger", "index"),
    )


# --- refused at parse -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "says", "line", "column"),
    [
        ("{{ customer.name }}", "Unknown name 'customer'", 1, 4),
        ("a\n  {{ firstName }}", "Unknown name 'firstName'", 2, 6),
        ("{{ today }}{{ now }}", "Unknown name 'today'", 1, 4),
        ("{{ self }}", "Unknown name 'self'", 1, 4),
        ("{{ a }}{% assign a = 1 %}", "Unknown name 'a'", 1, 4),
        ("{% if trigger.x == config %}{% endif %}", "Unknown name 'config'", 1, 20),
        ("{{ trigger.x[secrets.y] }}", "Unknown name 'secrets'", 1, 14),
        ("{{ [trigger.x] }}", "Unknown name", 1, 4),
        ("{{ ''.__class__ }}", "expected the end", 1, 6),
        ("{{ trigger.x | nofilter }}", "no filter 'nofilter'", 1, 16),
        ("{{ trigger.html | safe }}", "no filter 'safe'", 1, 19),
        ("{{ trigger.list | concat: trigger.list }}", "no filter 'concat'", 1, 19),
        ("{% include '/etc/passwd' %}", "unexpected tag 'include'", 1, 1),
        ("{% render 'x' %}", "unexpected tag 'render'", 1, 1),
        ("{% tablerow i in trigger.list %}{% endtablerow %}", "unexpected tag 'tablerow'", 1, 1),
        ("\n\n  {{ unclosed", "{{ is never closed by }}", 3, 3),
        ("x {% if trigger.x", "{% is never closed by %}", 1, 3),
        ("{% if trigger.x %}\nyes", "expected tag endif, found the end", 2, 4),
        ("{% endif %}", "unexpected tag 'endif'", 1, 1),
        ("{% if %}{% endif %}", "something is missing here", 1, 1),
        ("{% raw %}", "never closed", 1, 10),
        ("{% comment %}{% endcoment %}", "never closed", 1, 14),
        ("{{ }}", "found the end", 1, 4),
        ("{{ trigger. }}", "found the end", 1, 13),
        ("{{ trigger..x }}", "found '..'", 1, 11),
        ("{{ trigger.x y }}", "found word", 1, 14),
        ("{{ trigger.x ; }}", "unexpected ';'", 1, 14),
        ("{{ trigger.x !! 1 }}", "unexpected '!!'", 1, 14),
        (r'{{ trigger["a\x"] }}', "is not a JSON string", 1, 11),
        ("{{ 'open }}", "unexpected", 1, 4),
        ("{{ trigger.list[-1] }}", "[-1] is not an index", 1, 16),
        ("{{ trigger.list[01] }}", "[01] is not an index", 1, 16),
        ("{{ trigger.list[+1] }}", "unexpected '+'", 1, 17),
        ("{{ trigger.list[1.0] }}", "unexpected path segment", 1, 17),
        ("{{ (1..10000000) | join: ',' }}", "a range (1..5) is only allowed in a for tag", 1, 4),
        ("{% assign a = (1..5) %}", "a range (1..5) is only allowed in a for tag", 1, 15),
        ("{% if not trigger.x %}{% endif %}", "not", 1, 7),
        ("{% if " + "trigger and " * 5_000 + "trigger %}{% endif %}", "too deeply", 1, 1),
        ("{{ " + "trigger[" * 5_000 + "}}", "too deeply", 1, 1),
        ("{% if trigger %}" * 40, "nesting limit", 1, 497),
        ("x" * 65_537, "at most 65536 characters", 1, 1),
        ("{{ " + "9" * 5_000 + " }}", "4300", 1, 3),
    ],
)
def test_what_cannot_work_is_refused_with_line_and_column(
    source: str, says: str, line: int, column: int
) -> None:
    with pytest.raises(TemplateError) as caught:
        template.parse(source)
    assert says in caught.value.message
    assert (caught.value.line, caught.value.column) == (line, column)


def test_roots_can_be_fewer() -> None:
    roots = frozenset({"trigger"})
    assert text("{{trigger.or}}", roots=roots) == "OR"
    with pytest.raises(TemplateError, match="a template reads trigger "):
        template.parse("{{contact.email}}", roots=roots)


def test_a_template_is_parsed_once_for_text_and_once_for_html() -> None:
    assert template.parse("{{trigger.a}}") is template.parse("{{trigger.a}}")
    assert template.parse("{{trigger.a}}") is not template.parse("{{trigger.a}}", html=True)


# --- failing and hanging --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("\n{{ trigger.price | divided_by: 0 }}", "can't divide by 0 (line 2)"),
        ("{% if trigger.price > 10 %}{% endif %}", "not supported between"),
        ("{{ trigger.list | sort }}", "(line 1)"),
        ("{{ trigger.word | slice }}", "(line 1)"),
        ("{{ trigger.word | truncate: trigger.nowhere }}", "expected an integer"),
        ("{{ 'é' | base64_decode }}", "The template failed on this data"),
        ("{{ trigger.inf | times: 2 }}", "not a number"),
        ("{{ trigger.inf | round }}", "The template failed on this data"),
        ("{% if trigger.contains contains trigger.list %}{% endif %}", "unhashable"),
        ("{% break %}", "unexpected 'break'"),
        ("{{ trigger.word | escape: environment: 1 }}", "The template failed on this data"),
    ],
)
def test_a_failing_filter_fails_the_render_and_says_where(source: str, says: str) -> None:
    with pytest.raises(RenderError) as caught:
        template.parse(source).render(FACTS)
    assert says in caught.value.message


MEGABYTE = {
    "trigger": {
        "big": "a" * 1_000_000,
        "tags": "<" * 1_000_000,
        "list": list(range(10**9, 10**9 + 100_000)),
        "n": 10**9,
        "digits": document.LiteralInt("9" * 4_300),
    }
}


@pytest.mark.timeout(10)  # no request may hang longer; what is quadratic takes more
@pytest.mark.parametrize(
    "source",
    [
        "{% for i in (1..1000000000) %}{% endfor %}",
        "{% for i in (1..trigger.n) %}{% endfor %}",
        "{% for i in (1..trigger.n) reversed %}{% endfor %}",
        "{% for i in (1..10000000000) offset: 9999999990 %}x{% endfor %}",
        "{% for i in (1..100) %}{% for j in (1..101) %}{% endfor %}{% endfor %}",
        "{% for i in (1..10000) %}{% endfor %}" * 1_700,
        "{% for i in trigger.list %}{% endfor %}",
        "{% for i in trigger.list reversed %}{% endfor %}",
        "{% assign x = 'x' %}{% for i in (1..40) %}{% assign x = x | append: x %}{% endfor %}",
        "{% assign x = 9 %}{% for i in (1..40) %}{% assign x = x | times: x %}{% endfor %}",
        "{% for i in (1..40) %}{% capture x %}{{x}}{{x}}xx{% endcapture %}{% endfor %}",
        "{% for i in (1..9999) %}{% capture x %}{{trigger.big}}{% endcapture %}{% endfor %}",
        "{% for i in (1..9999) %}{% assign x = trigger.list | sort | size %}{% endfor %}",
        "{% for i in (1..9999) %}{{ trigger.big | escape | size }}{% endfor %}",
        "{{ trigger.big | replace: 'a', trigger.big }}",
        "{{ trigger.big | replace: '', trigger.big }}",
        "{{ 'aaaaaaaaaa' "
        + "| replace: 'a', 'bbbbbbbbbbbbbbbb' | replace: 'b', 'aaaaaaaaaaaaaaaa' " * 20
        + "}}",
        "{{ trigger.list | join: trigger.big }}",
        "{{ trigger.big | split: '' | join: trigger.big }}",
        "{{ trigger.big | append: trigger.big }}",
        "{{ trigger.list | uniq }}",
        "{{ trigger.list | map: 'x' }}",
        "{{ trigger.list }}",
        "{{ trigger.big }}{{ trigger.big }}",
        "{{ trigger.digits | times: trigger.digits }}",
        "{{ trigger.big | date: '%%' }}{{ 0 | date: '" + "%" * 10_000 + "' }}",
    ],
)
@pytest.mark.parametrize("html", [False, True])
def test_no_template_takes_for_ever_or_much_memory(source: str, html: bool) -> None:
    parsed = template.parse(source, html=html)
    with pytest.raises(RenderError, match=r"most|more|longer|grows|digits"):
        parsed.render(MEGABYTE)


@pytest.mark.timeout(10)  # no request may hang longer; what is quadratic takes more
@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' | truncate: 999999999999 }}",
        "{{ 'x' | truncatewords: 999999999999 }}",
        "{{ 'x' | slice: 0, 999999999999999999999999 }}",
        "{{ 'x' | slice: -999999999999999999999999 }}",
        "{{ 1.5 | round: 999999999 }}",
        "{{ 0 | date: '%999999999d' }}",
        "{{ trigger.tags | strip_html | size }}",
        "{{ trigger.tags | url_decode | strip | squish | size }}",
        "{{ trigger.list | sort | sum }}",
        "{{ trigger.big | date: '%Y' | size }}",
        "{{ trigger" + " | size" * 5_000 + " }}",
        "{{ trigger" + ".a" * 30_000 + " }}",
    ],
)
def test_huge_arguments_do_not_hang(source: str) -> None:
    parsed = template.parse(source)
    parsed.render(MEGABYTE)


@pytest.mark.timeout(10)  # no request may hang longer; what is quadratic takes more
@pytest.mark.parametrize(
    "source",
    [
        *("{{" + " " * 60_000, "{% if" + " " * 60_000, "{{" * 30_000, "{{-" * 20_000),
        *("{% raw %}" * 7_000, "{% raw %}" + "{% " * 20_000, "{% comment " * 5_000),
        *("{% comment %}" * 5_000, "{% comment %}" + "{% comment " * 5_000),
        *(
            "{{ " + "(" * 60_000 + " }}",
            "{{ " + "\"'" * 30_000 + " }}",
            "{{ " + "[" * 60_000 + "}}",
        ),
        *("{{ " + 'a["a" ' * 10_000 + "}}", '{{ a["' + r"\"" * 30_000 + "}}"),
        *("{% for i in " + "(" * 60_000 + " %}", "{% # " + "\n" * 60_000 + "%"),
        *("{{ trigger.a" + ":a" * 30_000 + " ! }}", "{% if trigger %}" * 4_000),
    ],
    ids=lambda source: f"{source[:20].strip()}…",
)
def test_no_source_hangs_its_reader(source: str) -> None:
    with pytest.raises(TemplateError):
        template.parse(source)


# --- HTML -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        ("<p>{{trigger.html}}</p>", "<p>&lt;b onload=&#34;x&#34;&gt;&#39;&amp;</p>"),
        ("{{trigger.html | escape}}", "&lt;b onload=&#34;x&#34;&gt;&#39;&amp;"),
        ("{{trigger.contains}}", "{&#34;and&#34;:&#34;deep&#34;}"),
        ("{{trigger.contains | json}}", "{&#34;and&#34;:&#34;deep&#34;}"),
        ("{{trigger.word | append: '<br>'}}", "Tea &amp; Cake<br>"),
        ("{{'<br>'}}", "<br>"),
        ("{% capture a %}<b>{{trigger.word}}</b>{% endcapture %}{{a}}", "<b>Tea &amp; Cake</b>"),
        ("{{trigger.lines | newline_to_br}}", "a<br />\nb"),
        ("{{trigger.word | split: ' ' | join: '<br>'}}", "Tea<br>&amp;<br>Cake"),
        ("{{trigger.nowhere | default: '<i>'}}", "<i>"),
        ("{{trigger.word | url_encode}}", "Tea+%26+Cake"),
        ("{{trigger.html | strip_html}}", "&#39;&amp;"),
        ("{{'<<b>script>' | strip_html}}", "&lt;script&gt;"),
    ],
)
def test_html_escapes_values_once_and_leaves_the_template_alone(source: str, printed: str) -> None:
    assert text(source, html=True) == printed


def test_text_escapes_nothing() -> None:
    assert text("{{trigger.html}}") == TRIGGER["html"]


ARGUMENTS = {
    "append": "trigger.evil",
    "at_least": "1",
    "at_most": "1",
    "date": "trigger.evil",
    "default": "trigger.evil",
    "divided_by": "1",
    "find": "trigger.evil",
    "join": "trigger.evil",
    "map": "trigger.evil",
    "minus": "1",
    "modulo": "1",
    "plus": "1",
    "prepend": "trigger.evil",
    "remove": "'x'",
    "remove_first": "'x'",
    "remove_last": "'x'",
    "replace": "'x', trigger.evil",
    "replace_first": "'x', trigger.evil",
    "replace_last": "'x', trigger.evil",
    "slice": "0, 50",
    "split": "'x'",
    "times": "1",
    "where": "trigger.evil",
}


@pytest.mark.parametrize("first", FILTERS)
def test_no_filter_lets_a_payload_write_html(first: str) -> None:
    evil = "<script>x</script>\"'&lt;img&gt;%3Cb%3E"
    for second in FILTERS:
        once, twice = _piped(first), _piped(first) + _piped(second)
        source = (
            f"{{{{ trigger.value{twice} }}}}"
            f"{{% capture a %}}{{{{ trigger.value{once} }}}}{{% endcapture %}}"
            f"{{{{ a{_piped(second)} }}}}{{{{ a{twice} }}}}"
        )
        parsed = template.parse(source, html=True)
        for value in (evil, [evil, {evil: evil}]):
            with suppress(RenderError):
                printed = parsed.render({"trigger": {"evil": evil, "value": value}}).text
                assert not re.search("[<>\"']", printed.replace("<br />", "")), source


def _piped(name: str) -> str:
    argument = ARGUMENTS.get(name)
    return f" | {name}" if argument is None else f" | {name}: {argument}"


# --- dates, lists and the rest --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        ("{{ now | date: '%Y-%m-%d %H:%M' }}", "2026-11-02 10:20"),
        ("{{ 'now' | date: '%d.%m.%Y' }}", "02.11.2026"),
        ("{{ '2026-11-02T10:20:31+01:00' | date: '%H:%M' }}", "10:20"),
        ("{{ '2026-11-05T13:30:00.000000Z' | date: '%H:%M' }}", "13:30"),
        ("{{ 'Mon, 02 Nov 2026 10:20:31 +0100' | date: '%d %H' }}", "02 10"),
        ("{{ '2026-11-05' | date: '%d' }}", "05"),
        ("{{ 1793610847 | date: '%Y-%m-%d' }}", "2026-11-02"),
        ("{{ 1793610900123 | date: '%Y-%m-%d' }}", "2026-11-02"),
        ("{{ '1793610847' | date: '%Y' }}", "2026"),
        ("{{ 'next week' | date: '%Y' }}", "next week"),
        ("{{ trigger.big | date: '%Y' }}", "123456789012345678901"),
        ("[{{ trigger.null | date: '%Y' }}{{ trigger.nowhere | date: '%Y' }}]", "[]"),
        ("{{ trigger.list | map: 'name' | join: ', ' }}", "Mug, Tea"),
        ("{{ trigger.list | map: 'nowhere' | json }}", "[null,null]"),
        ("{{ 'b,a,b' | split: ',' | uniq | sort | join: '-' }}", "a-b"),
        ("{{ trigger.list | uniq: 'name' | size }}", "2"),
        ("{{ trigger.list | where: 'name', 'Tea' | map: 'qty' | first }}", "4"),
        ("{{ trigger.list | slice: 1 | map: 'name' | last }}", "Tea"),
        ("{{ trigger.yes | append: trigger.no | append: trigger.null }}!", "truefalse!"),
        ("{{ trigger.list | upcase }}", '[{"NAME":"MUG","QTY":2},{"NAME":"TEA","QTY":4}]'),
        ("{{ trigger.no | default: 'x' }}", "x"),
        ("{{ trigger.no | default: 'x', allow_false: true }}", "false"),
        ("{{ trigger.minus | default: 'x' }}{{ trigger.none | default: 'x' }}", "-0x"),
        ("{{ trigger.nowhere | json }}", "null"),
        ("{{ trigger.total | json }}", "1.10"),
        ("{{ trigger.word | replace: 'Tea', 'Mug' | remove: ' ' }}", "Mug&Cake"),
        ("{{ empty }}{{ blank }}{{ nil }}", ""),
    ],
)
def test_filters_work_on_what_senders_send(source: str, printed: str) -> None:
    assert text(source) == printed


def test_no_clock_but_the_runs_is_read() -> None:
    assert template.parse("{{ 'now' | date: '%Y' }}[{{ now }}]").render({}).text == "now[]"


# --- whatever comes -------------------------------------------------------------------------------

PIECES = (
    "{{ }} {% %} {%- -%} trigger .a [0] [-1] ['k'] [\"k\"] | upcase default : , 'x' 5 1.5 (1..3) "
    "if endif for in endfor assign = capture endcapture case when endcase raw endraw comment "
    "endcomment # else elsif unless break == > contains and or nil empty \n & < % { } - . ( ) [ ]"
)
SOURCES = st.lists(
    st.one_of(st.sampled_from(PIECES.split(" ")), st.text(max_size=3)), max_size=14
).map(" ".join)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "k", "size"]), inner, max_size=3),
    ),
    max_leaves=6,
)


@examples(500)
@given(SOURCES, VALUES, st.booleans())
def test_nothing_but_the_two_errors_comes_out(source: str, value: Any, html: bool) -> None:
    with suppress(TemplateError, RenderError):
        template.parse(source, html=html).render({"trigger": value})


@examples(300)
@given(VALUES, st.sampled_from(sorted(FILTERS)), st.booleans())
def test_no_value_breaks_a_filter_otherwise(value: Any, name: str, html: bool) -> None:
    source = f"{{{{ trigger{_piped(name).replace('evil', 'a')} }}}}"
    with suppress(RenderError):
        template.parse(source, html=html).render({"trigger": value})


@examples(200)
@given(st.text(max_size=30).filter(lambda source: "{{" not in source and "{%" not in source))
def test_text_without_markup_is_itself(source: str) -> None:
    assert template.parse(source).render({}).text == document.text(source)
