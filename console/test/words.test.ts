import './page'
import { equal } from 'node:assert/strict'
import { test } from 'node:test'
import { asItReads, occasion } from '../src/words'

const SAID: [object, string][] = [
  [{}, 'a member or another flow'],
  [{ source: 'tag_added', tag: 'vip' }, 'a tag: vip'],
  [{ source: 'event', name: 'paid', field: 'createdAt' }, 'a contact event: paid'],
  [{ source: 'date', field: 'metadata.birthday', repeat: 'yearly' }, 'a date of the contact: birthday, every year'],
  [{ source: 'date', field: 'createdAt', tag: 'left over' }, 'a date of the contact: createdAt'],
  [{ source: 'date' }, 'a date of the contact'],
]
for (const [trigger, words] of SAID) test(`a flow says what starts it: ${words}`, () => equal(occasion(trigger), words))

const READ: [unknown, string][] = [
  ['Ada', 'Ada'],
  [5, '5'],
  ['5', '"5"'],
  [true, 'true'],
  ['true', '"true"'],
  ['', '""'],
  ['  ', '"  "'],
  ['["vip"]', '"[\\"vip\\"]"'],
  [['vip'], '["vip"]'],
]
for (const [value, text] of READ) test(`a value reads as it is: ${text}`, () => equal(asItReads(value), text))
