import './page'
import { deepEqual } from 'node:assert/strict'
import { test } from 'node:test'
import { sought } from '../src/sought'

const members = [
  'Ada Lovelace ada@example.com owner',
  'Grace Hopper grace@example.com editor',
  'Alan Turing alan@example.com editor',
]
const found = (words: string) => sought(members, member => member, words).map(member => member.split(' ')[0])

test('a list is narrowed by words that stand anywhere in a row, in any order and however they are written', () => {
  deepEqual(found('LOVE'), ['Ada'])
  deepEqual(found('  editor a '), ['Grace', 'Alan'])
  deepEqual(found('turing editor'), ['Alan'])
  deepEqual(found('owner turing'), [])
})

test('no word narrows nothing', () => {
  deepEqual(found(' '), ['Ada', 'Grace', 'Alan'])
})
