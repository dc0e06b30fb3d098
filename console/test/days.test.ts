import './page'
import { deepEqual, equal } from 'node:assert/strict'
import { test } from 'node:test'
import { begins, days, halves, local, whole } from '../src/days'

/** As somebody there sees it. */
function at(zone: string, look: () => void) {
  const { TZ } = process.env
  process.env.TZ = zone
  try {
    look()
  } finally {
    if (TZ === undefined)
      delete process.env.TZ // what is assigned becomes a text
    else process.env.TZ = TZ
  }
}

test('a day of a filter is that of the reader, with its first and its last moment', () =>
  at('Asia/Kathmandu', () => {
    const query = new URLSearchParams({ createdAfter: '2026-03-02', createdBefore: '2026-03-02' })
    deepEqual(days(query), { createdAfter: '2026-03-01T18:14:59.999Z', createdBefore: '2026-03-02T18:15:00.000Z' })
  }))

test('the day on which the clocks change has as many hours as it has there', () =>
  at('Europe/Berlin', () => {
    const hours = (day: string) => (begins(day, 1)!.getTime() - begins(day)!.getTime()) / 3_600_000
    deepEqual(['2026-10-25', '2027-03-28', '2027-03-29'].map(hours), [25, 23, 24])
  }))

test('what is no day is no filter', () => {
  for (const text of ['', 'tomorrow', '2026-xx-01']) {
    equal(begins(text), null)
    deepEqual(days(new URLSearchParams({ updatedAfter: text })), {})
  }
})

test('a moment stands in its field by the clock of the reader', () =>
  at('Asia/Kathmandu', () => {
    equal(local('2026-03-02T10:00:30Z'), '2026-03-02T15:45')
    equal(local(null), '')
  }))

for (const zone of ['America/New_York', 'Asia/Kathmandu'])
  test(`a day stays the same day in ${zone}, and a moment the same moment`, () =>
    at(zone, () => {
      deepEqual(halves('2026-03-01', false), { day: '2026-03-01', time: '' })
      deepEqual(halves('2026-03-01', true), { day: '2026-03-01', time: '' })
      deepEqual(halves('', false), { day: '', time: '' })
      equal(whole('2026-03-01', '', true), '2026-03-01')
      for (const moment of [
        '2026-03-01T09:30:00.000Z',
        '2026-03-01T09:30:15.000Z',
        '2026-03-01T09:30:15.250Z',
        new Date('2026-03-01T00:00:00').toISOString(),
        new Date('2026-03-01T00:00:07').toISOString(),
      ])
        for (const isDay of [true, false]) {
          const { day, time } = halves(moment, isDay)!
          equal(whole(day, time, !isDay), moment)
        }
    }))

test('a moment stands as its day and its time, and as its day alone where that begins', () =>
  at('America/New_York', () => {
    const seen: [string, boolean, string, string][] = [
      ['2026-03-01T14:30:00Z', true, '2026-03-01', '09:30'],
      ['2026-03-01T14:30:15Z', true, '2026-03-01', '09:30:15'],
      ['2026-03-01T14:30:15.250+00:00', true, '2026-03-01', '09:30:15.250'],
      ['2026-03-01T05:00:00Z', true, '2026-03-01', ''],
      ['2026-03-01T05:00:00Z', false, '2026-03-01', '00:00'],
      ['2026-03-01T05:00:07Z', true, '2026-03-01', '00:00:07'],
    ]
    for (const [value, isDay, day, time] of seen) deepEqual(halves(value, isDay), { day, time }, value)
    equal(whole('2026-03-01', '', false), '2026-03-01T05:00:00.000Z')
    equal(whole('2026-03-01', '09:30', true), '2026-03-01T14:30:00.000Z')
    equal(whole('', '09:30', false), '')
  }))

test('what is no moment is none, and breaks nothing', () =>
  at('Asia/Kathmandu', () => {
    for (const text of [
      'never',
      '2026-03-01T10:00',
      '2026-02-30',
      '2026-13-01',
      '12026-03-01',
      '2026-03-01T99:00:00Z',
      '9999-12-31T23:59:59Z',
      'P30D',
    ])
      equal(halves(text, true), null, text)
    equal(whole('12026-03-01', '', false), '12026-03-01')
    equal(local('never'), '')
  }))
