import './page'
import { deepEqual, equal } from 'node:assert/strict'
import { test } from 'node:test'
import { begins, days, local } from '../src/days'

/** As somebody there sees it. */
function at(zone: string, look: () => void) {
  const { TZ } = process.env
  process.env.TZ = zone
  try { look() } finally {
    if (TZ === undefined) delete process.env.TZ // what is assigned becomes a text
    else process.env.TZ = TZ
  }
}

test('a day of a filter is that of the reader, with its first and its last moment', () => at('Asia/Kathmandu', () => {
  const query = new URLSearchParams({ createdAfter: '2026-03-02', createdBefore: '2026-03-02' })
  deepEqual(days(query), { createdAfter: '2026-03-01T18:14:59.999Z', createdBefore: '2026-03-02T18:15:00.000Z' })
}))

test('the day on which the clocks change has as many hours as it has there', () => at('Europe/Berlin', () => {
  const hours = (day: string) => (begins(day, 1)!.getTime() - begins(day)!.getTime()) / 3_600_000
  deepEqual(['2026-10-25', '2027-03-28', '2027-03-29'].map(hours), [25, 23, 24])
}))

test('what is no day is no filter', () => {
  for (const text of ['', 'tomorrow', '2026-xx-01']) {
    equal(begins(text), null)
    deepEqual(days(new URLSearchParams({ updatedAfter: text })), {})
  }
})

test('a moment stands in its field by the clock of the reader', () => at('Asia/Kathmandu', () => {
  equal(local('2026-03-02T10:00:30Z'), '2026-03-02T15:45')
  equal(local(null), '')
}))
