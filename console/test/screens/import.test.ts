import '../page'
import { deepEqual } from 'node:assert/strict'
import { test } from 'node:test'
import { header } from '../../src/screens/import'

const FIRST_ROWS: [string, string, string[]][] = [
  ['commas', 'email,first name\nada@example.com,Ada', ['email', 'first name']],
  ['semicolons', 'E-Mail;Given\r\n', ['E-Mail', 'Given']],
  ['tabs', 'email\tphone', ['email', 'phone']],
  ['separators in quotation marks', '"E-Mail; work";Given;"Shoe, size"', ['E-Mail; work', 'Given', 'Shoe, size']],
  ['quotation marks and line breaks in them', '"a ""b"""\n'.replace('b', 'b\nc'), ['a "b\nc"']],
  ['empty cells', 'email,,phone,\n', ['email', 'phone']],
]

for (const [what, text, cells] of FIRST_ROWS)
  test(`the columns of a file are those of its first row, with ${what}`, () => deepEqual(header(text), cells))
