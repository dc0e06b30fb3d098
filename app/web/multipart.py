"""The file of a form (multipart/form-data, RFC 7578), read as a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from app.errors import FieldError, Problem

FORM = "multipart/form-data"


async def file(
    content_type: str, body: AsyncIterator[bytes], types: Mapping[str, str]
) -> tuple[str, AsyncIterator[bytes]]:
    """The media type of the form's one file and its content, as the body arrives.

    The type is that of `types` for how the file's name ends, else what the form says. Raises
    Problem: `malformed_request` for a body that is no form, `invalid` for a form of anything but
    one file of a known type; the same while the content is read.
    """
    form = _Form(content_type)
    async for piece in body:
        form.feed(piece)
        if form.header is not None:
            break
    if form.header is None:
        raise _invalid("The form has no file.")
    _, disposition = parse_options_header(form.header.get(b"content-disposition"))
    name = disposition.get(b"filename")
    if name is None:
        raise _invalid("The first part of the form is not a file; send the file alone.")
    ending = name.decode("latin-1").rpartition(".")[2].lower()
    given = parse_options_header(form.header.get(b"content-type"))[0].decode("latin-1")
    media_type = types.get(ending, given)
    if media_type not in types.values():
        endings = " or ".join(f".{ending}" for ending in types)
        raise _invalid(f"Send a file whose name ends in {endings}.")
    return media_type, _content(form, body)


async def _content(form: _Form, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield form.taken()
    async for piece in body:
        form.feed(piece)
        if taken := form.taken():
            yield taken
    if not form.ended:
        raise _malformed("The form ends before its last boundary.")


@dataclass(slots=True)
class _Form:
    """A form of one part. Its header is bounded by the parser, its content by whoever reads it."""

    content_type: str
    header: Mapping[bytes, bytes] | None = None  # of the part, once it is whole
    ended: bool = False
    _parts: int = 0
    _fields: list[tuple[bytes, bytes]] = field(default_factory=list)
    _name: bytes = b""
    _value: bytes = b""
    _content: list[bytes] = field(default_factory=list)
    _parser: MultipartParser = field(init=False)

    def __post_init__(self) -> None:
        boundary = parse_options_header(self.content_type)[1].get(b"boundary")
        if not boundary:
            raise _malformed("The Content-Type of a form must name its boundary.")
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin,
                    "on_header_field": self._add_to_name,
                    "on_header_value": self._add_to_value,
                    "on_header_end": self._end_field,
                    "on_headers_finished": self._end_header,
                    "on_part_data": self._add_content,
                    "on_end": self._end,
                },
            )
        except FormParserError as error:  # of a boundary longer than RFC 2046 §5.1.1 allows
            raise _malformed(f"The boundary in the Content-Type is not valid: {error}.") from None

    def feed(self, piece: bytes) -> None:
        try:
            self._parser.write(piece)
        except FormParserError as error:
            raise _malformed(f"The body is not a form: {error}.") from None

    def taken(self) -> bytes:
        content, self._content = b"".join(self._content), []
        return content

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > 1:
            raise _invalid("The form has more than one part; send the file alone.")

    def _add_to_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _add_to_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_field(self) -> None:
        self._fields.append((self._name.lower(), self._value))
        self._name = self._value = b""

    def _end_header(self) -> None:
        self.header = dict(self._fields)

    def _add_content(self, data: bytes, start: int, end: int) -> None:
        self._content.append(data[start:end])

    def _end(self) -> None:
        self.ended = True


def _malformed(detail: str) -> Problem:
    return Problem("malformed_request", detail)


def _invalid(detail: str) -> Problem:
    return Problem("invalid", detail, errors=[FieldError("/file", detail)])
