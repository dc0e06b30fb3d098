import './page'
import { deepEqual, equal } from 'node:assert/strict'
import { test } from 'node:test'
import type { Listed } from '../src/data'
import { merged } from '../src/names'

interface Row { createdAt: string }

function listed(moments: string[], hasMore: boolean, read: () => void = () => {}): Listed<Row> {
  return { rows: moments.map(createdAt => ({ createdAt })), problem: null, busy: false, more: hasMore ? async () => read() : null, reload: async () => {} }
}
const shown = (list: Listed<Row>) => list.rows!.map(each => each.createdAt)

test('two lists are one, the newest first', () => {
  const both = merged(listed(['05', '02'], false), listed(['04', '03', '01'], false))
  deepEqual(shown(both), ['05', '04', '03', '02', '01'])
  equal(both.more, null)
})

test('it goes back only as far as both are known, and reads on in both', async () => {
  const read: string[] = []
  const both = merged(listed(['09', '06'], true, () => read.push('one')), listed(['08', '03'], true, () => read.push('other')))
  deepEqual(shown(both), ['09', '08', '06'])
  await both.more!()
  deepEqual(read, ['one', 'other'])
})
