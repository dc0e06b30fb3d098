import './page'
import { deepEqual, equal } from 'node:assert/strict'
import { test } from 'node:test'
import { begun, linesOf, valuesOf } from '../src/lines'

const FIELDS = {
  address: '1 Tea Street\nUlm',
  'a=b': 'c=d',
  said: '"tea"',
  padded: ' tea ',
  seats: 3,
  ' in ': 'Ulm',
  plan: 'pro',
}

/** What the lines say once somebody has changed this in them. */
function changed(old: string, next: string): Record<string, unknown> {
  const text = linesOf(FIELDS)
  equal(text.includes(old), true, text)
  return valuesOf(text.replace(old, next), FIELDS)
}

test('values that fit on no line are what they were after a change of another', () => {
  deepEqual(changed('plan = pro', 'plan = free'), { ...FIELDS, plan: 'free' })
})

test('a line break in a value can be typed', () => {
  equal(changed('Street\\nUlm', 'Street\\nBonn').address, '1 Tea Street\nBonn')
})

test('a name and a value in quotation marks keep signs and spaces', () => {
  const { 'a=b': gone, ...rest } = FIELDS
  deepEqual(changed('"a=b" = c=d', '"e=f" = "=g "'), { ...rest, 'e=f': '=g ' })
})

test('what reads as it did before keeps its type, and what is typed is a text', () => {
  deepEqual(valuesOf('seats = 3\nrooms = 3', { seats: 3 }), { seats: 3, rooms: '3' })
})

test('what is new may be true or false, which are texts in quotes', () => {
  deepEqual(valuesOf('vip = true\nlost = false\nsaid = "true"\nrooms = 3'), {
    vip: true,
    lost: false,
    said: 'true',
    rooms: '3',
  })
})

test('a field that was true can be made false, and a number another one', () => {
  const before = { vip: true, seats: 3, plan: 'true' }
  deepEqual(valuesOf('vip = false\nseats = 4\nplan = false', before), { vip: false, seats: 4, plan: 'false' })
  deepEqual(valuesOf('vip = maybe\nseats = true', before), { vip: 'maybe', seats: 'true' })
})

test('a name without a value is an empty text, and an empty line is nothing', () => {
  deepEqual(valuesOf('plan\n\n  \ncity ='), { plan: '', city: '' })
})

test('a line begins for a name, below what is there', () => {
  equal(begun('', 'plan'), 'plan = ')
  equal(begun('plan = pro\n\n', 'a = b'), 'plan = pro\n"a = b" = ')
  deepEqual(valuesOf(`${begun('plan = pro', ' odd')}x`), { plan: 'pro', ' odd': 'x' })
})
