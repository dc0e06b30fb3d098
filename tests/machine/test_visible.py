"""Visible links: hostile HTML, and the ways in which an author hides a link unawares."""

from __future__ import annotations

import time

import pytest

from app.machine.visible import shows_link

URL = "https://app.example/u/abc_-1"
LINK = f'<a href="{URL}">Unsubscribe</a>'


@pytest.mark.parametrize(
    "markup",
    [
        LINK,
        f"<!doctype html><html><head><title>x</title></head><body><p>Hi</p>{LINK}</body></html>",
        f"<A HREF='{URL}' STYLE='color:red'>out</A>",
        f"<a class=x href={URL}>out</a>",
        f'<a href=" {URL} "><b>out</b></a>',
        f'<a href="{URL}"><img src="x.png" alt="Unsubscribe"></a>',
        f"<div style='display:none'>x</div>{LINK}",
        f"<div hidden><p>x</div>{LINK}",
        f"<p><br>{LINK}",
        f"<!-- x -->{LINK}<!-- y -->",
        f"<!-->{LINK}",
        f'<td style="border-width:0;line-height:0;opacity:0.5">{LINK}</td>',
        f'<td style="font-size:0.9em;font:0.9em a">{LINK}</td>',
        f"<p title=it's>{LINK}",
        f'<a title="1 > 0" href="{URL}">out</a>',
        f"a < b {LINK}",
        f"</b></div>{LINK}",
        f"<style>a{{}}</style><script>'<a'</script>{LINK}",
        f'<a href="{URL}" href="x">out</a>',
    ],
)
def test_a_link_that_a_reader_sees_is_seen(markup: str) -> None:
    assert shows_link(markup, URL)


@pytest.mark.parametrize(
    "markup",
    [
        "",
        URL,
        f"<p>{URL}</p>",
        f"<!-- {LINK} -->",
        f"<!-- {LINK}",
        f"<!--[if mso]>{LINK}<![endif]-->",
        f"<! {LINK}",
        f"<?php {LINK} ?>",
        f"<div style='display:none'>{LINK}</div>",
        f"<div style='DISPLAY : None'>{LINK}</div>",
        f"<div style='dis/**/play:none;dis/* */play:none'>{LINK}</div>",
        f"<div style='color:red; display:&#110;one'>{LINK}</div>",
        f"<div hidden><p>a</p>{LINK}</div>",
        f"<table style='mso-hide:all'><tr><td>{LINK}",
        f"<span style='font-size:0'>{LINK}</span>",
        f"<span style='font:0/0 a'>{LINK}</span>",
        f"<div style='max-height:0px;overflow:hidden'>{LINK}</div>",
        f"<div style='visibility:hidden'>{LINK}</div>",
        f"<div style='position:absolute;left:-9999px'>{LINK}</div>",
        f"<p style='opacity:0'>{LINK}</p>",
        f"<script>{LINK}</script>",
        f"<style>{LINK}",
        f"<textarea>{LINK}</textarea>",
        f"<title>{LINK}</title>",
        f"<noscript>{LINK}</noscript>",
        f"<template>{LINK}</template>",
        f'<a href="{URL}"></a>',
        f'<a href="{URL}"> &nbsp;&zwnj;\u200b </a>',
        f'<a href="{URL}"><img src="dot.gif"></a>',
        f'<a href="{URL}"></a>out',
        f'<a href="{URL}" style="display:none">out</a>',
        f'<a href="{URL}"><span hidden>out</span></a>',
        f'<a href="{URL}2">out</a>',
        f'<a data-href="{URL}">out</a>',
        f'<a href="x" href="{URL}">out</a>',
        f'<link href="{URL}">out',
        f'<div title="{LINK.replace(chr(34), chr(39))}">x</div>',
        f"<div title='{LINK}",
        f"&lt;a href={URL}&gt;out&lt;/a&gt;",
    ],
)
def test_a_link_that_nobody_sees_does_not_count(markup: str) -> None:
    assert not shows_link(markup, URL)


PIECES = (
    *("<", "<a", "<a =", '<a ="', "<a ='\"", "<!--", "<b>", "</b>", "<b></i>", "<style>", "<!"),
    *("</", "&#", "<a style='/*", "<p a=b a=b ", '<a href=x style="display', "<b hidden>"),
)


@pytest.mark.parametrize("piece", PIECES)
def test_half_a_megabyte_of_anything_takes_no_time(piece: str) -> None:
    began = time.monotonic()
    shows_link(piece * (500_000 // len(piece)) + LINK, URL)
    assert time.monotonic() - began < 10.0
