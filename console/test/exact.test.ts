import './page'
import { deepEqual, equal, throws } from 'node:assert/strict'
import { test } from 'node:test'
import { flaw, objectOf } from '../src/exact'

const TEXT = 'a text does not end on its line, or has an invalid backslash'
const FLAWS: Record<string, string> = {
  '{"data": {"name": "Ada",\n  }}': 'line 2, column 3: expected a name in double quotes',
  '{name: 1}': 'line 1, column 2: expected a name in double quotes or }',
  '{"a" 1}': 'line 1, column 6: expected a colon',
  '{"a": [1 2]}': 'line 1, column 10: expected a comma or ]',
  '{"a": [1,]}': 'line 1, column 10: expected a value',
  '{"a": 01}': 'line 1, column 7: expected a value',
  '{"a": "b\n"}': `line 1, column 7: ${TEXT}`,
  '{"a": "\\x"}': `line 1, column 7: ${TEXT}`,
  '{} {}': 'line 1, column 4: expected nothing more',
  '{': 'line 1, column 2: expected a name in double quotes or }',
}

for (const [text, sentence] of Object.entries(FLAWS))
  test(`of ${JSON.stringify(text)} it is said where it stops being JSON`, () => {
    equal(flaw(text), `Not valid JSON at ${sentence}.`)
    throws(() => JSON.parse(text), /./)
  })

test('of JSON nothing is said', () => {
  for (const text of ['{}', ' [1, -2.5e3, "a\\u00e9\\n", null, {"b": [true, []]}]\n', '"x"', '0']) equal(flaw(text), '')
})

test('what is typed as an object is one, and nothing typed is an empty one', () => {
  deepEqual(objectOf('{"data": {}}', '/trigger'), { data: {} })
  deepEqual(objectOf('  ', '/trigger'), {})
  throws(() => objectOf('[]', '/trigger'), /must be a JSON object/)
})
