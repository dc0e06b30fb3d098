import { deepEqual, equal, rejects } from 'node:assert/strict'
import { test } from 'node:test'
import { answering } from './page'
import type { Listed } from '../src/data'
import { called, inTurn, merged, plain, readUsed, rest, unnamed } from '../src/names'

interface Row {
  createdAt: string
}

function listed(moments: string[], hasMore: boolean, read: () => void = () => {}): Listed<Row> {
  return {
    rows: moments.map(createdAt => ({ createdAt })),
    problem: null,
    busy: false,
    more: hasMore ? async () => read() : null,
    reload: async () => {},
  }
}
const shown = (list: Listed<Row>) => list.rows!.map(each => each.createdAt)

test('two lists are one, the newest first', () => {
  const both = merged(listed(['05', '02'], false), listed(['04', '03', '01'], false))
  deepEqual(shown(both), ['05', '04', '03', '02', '01'])
  equal(both.more, null)
})

test('it goes back only as far as both are known, and reads on in both', async () => {
  const read: string[] = []
  const both = merged(
    listed(['09', '06'], true, () => read.push('one')),
    listed(['08', '03'], true, () => read.push('other')),
  )
  deepEqual(shown(both), ['09', '08', '06'])
  await both.more!()
  deepEqual(read, ['one', 'other'])
})

test('it says that more of it had been opened, of whichever of the two that is', () => {
  const cut = { ...listed(['09', '06'], true), isCut: true }
  equal(merged(cut, listed(['08'], false)).isCut, true)
  equal(merged(listed(['08'], true), cut).isCut, true)
  equal(merged(listed(['08'], true), listed(['07'], true)).isCut, false)
})

test('a name is compared as it can be read', () => {
  equal(plain(' Ada\u200b  \u202eLovelace\u3164 '), 'Ada Lovelace')
  equal(plain('Zoe\u0308'), 'Zo\u00eb')
})

test('a contact is called by what of its name can be seen, else by an address, else by its ID', () => {
  const nobody = { id: 'con_1', firstName: '\u200b', lastName: '   ', email: null, phone: null }
  equal(called({ ...nobody, firstName: 'Ada' }), 'Ada')
  equal(called({ ...nobody, email: 'ada@example.com' }), 'ada@example.com')
  equal(called(nobody), 'con_1')
})

test('names are asked for once each, of those who are somebody and not known yet, and not of too many at once', () => {
  const ids = ['con_1', null, 'con_2', 'con_1', '', 'con_3', 'con_4']
  deepEqual(
    unnamed(ids, id => id === 'con_2', 2),
    ['con_1', 'con_3'],
  )
  deepEqual(
    unnamed(ids, () => true, 2),
    [],
  )
})

test('what is refused each time keeps no place from the others', () => {
  const ids = Array.from({ length: 14 }, (_, index) => `tpl_${index}`)
  const refused = new Map<string, number>()
  const asked: string[] = []
  for (let round = 0; round < 3; round++)
    for (const id of inTurn(ids, refused)) {
      asked.push(id)
      refused.set(id, (refused.get(id) ?? 0) + 1)
    }
  deepEqual(asked, [...ids, ...ids.slice(0, 4)])
  deepEqual(inTurn(ids.slice(0, 2), refused), ids.slice(0, 2))
})

test('what is refused again and again is asked for ever more seldom', () => {
  deepEqual([[], [1], [3, 2], [9, 8]].map(rest), [0, 5000, 10_000, 300_000])
})

test('the names in use are asked for once, and again where they were refused', async () => {
  const asked = answering(
    () => Response.json({ code: 'unavailable', detail: 'Later.' }, { status: 503 }),
    () => Response.json({ fields: [], events: ['paid'] }),
  )
  await rejects(readUsed(), /Later/)
  for (let times = 0; times < 3; times++) deepEqual((await readUsed()).events, ['paid'])
  equal(asked.length, 2)
})
