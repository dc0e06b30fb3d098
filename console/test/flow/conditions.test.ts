import '../page'
import { deepEqual, equal } from 'node:assert/strict'
import { test } from 'node:test'
import { parse } from '../../src/exact'
import { fit, listed, readText } from '../../src/flow/conditions'
import { textOf } from '../../src/flow/form'

const DAY = '2026-03-01',
  AT = '2026-03-01T09:30:15Z'
/** The operator and the value that were, the operator that is chosen, whether of a text, and what remains. */
const FITS: [string, unknown, string, boolean, unknown][] = [
  ['eq', 'pro', 'in', false, ['pro']],
  ['eq', '', 'in', false, []],
  ['eq', undefined, 'in', false, []],
  ['eq', null, 'in', false, [null]],
  ['in', ['pro', 'team'], '', false, ['pro', 'team']],
  ['in', ['pro', 'team'], 'eq', false, 'pro'],
  ['in', [], 'eq', false, ''],
  ['in', [null], 'eq', false, null],
  ['in', 'pro', 'in', false, ['pro']],
  ['eq', 'pro', 'ne', true, 'pro'],
  ['eq', '42', 'in', true, ['42']],
  ['in', ['42'], 'eq', true, '42'],
  ['eq', 42, 'ne', true, '42'],
  ['eq', null, 'ne', true, null],
  ['eq', 42, 'gt', false, 42],
  ['eq', '42', 'ne', false, '42'],
  ['eq', 42, 'starts_with', false, '42'],
  ['ne', true, 'eq', false, true],
  ['eq', 'pro', 'exists', false, true],
  ['eq', false, 'exists', false, true],
  ['exists', false, 'exists', false, false],
  ['exists', true, 'eq', false, ''],
  ['exists', true, 'in', true, []],
  ['eq', 'never', 'after', false, ''],
  ['eq', DAY, 'after', false, DAY],
  ['before', AT, 'after', false, AT],
  ['in', ['never', AT], 'before', false, AT],
  ['after', AT, 'within_last', false, ''],
  ['within_last', 'P7D', 'within_last', false, 'P7D'],
  ['within_last', 'P7D', 'after', false, ''],
  ['within_last', 'P7D', 'eq', true, ''],
]
for (const [was, value, op, isText, remains] of FITS)
  test(`${JSON.stringify(value)} of ${was} is ${JSON.stringify(remains)} of ${op}${isText ? ', a text' : ''}`, () =>
    deepEqual(fit(op, { op: was, value }, { isText }), remains))

test('what is typed for a text is one, but for null', () => {
  const read: [string, unknown][] = [
    ['42', '42'],
    ['true', 'true'],
    ['null', null],
    ['"null"', 'null'],
    ['"pro"', '"pro"'],
    ['', ''],
  ]
  for (const [text, value] of read) equal(readText(text), value)
  deepEqual(listed('42, "pro", 1.5', true), ['42', 'pro', '1.5'])
  deepEqual(listed('42, "42"', false), [42, '42'])
  deepEqual(listed('pro, 42', true), ['pro', '42'])
})

test('whatever was stored has a text', () => {
  const texts: [unknown, string][] = [
    ['pro', 'pro'],
    [parse('2.5'), '2.5'],
    [null, 'null'],
    [true, 'true'],
    [undefined, ''],
    [{ a: 1 }, '{"a":1}'],
  ]
  for (const [value, text] of texts) equal(textOf(value), text)
})
