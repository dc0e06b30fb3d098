import '../page'
import { deepEqual, equal } from 'node:assert/strict'
import { test } from 'node:test'
import { cronOf, timeOf } from '../../src/flow/occasions'

const LINES: Record<string, { time: string; date: string; days: string; way: string }> = {
  '0 9 * * *': { time: '09:00', date: '*', days: '*', way: 'day' },
  '15 8 * * mon,thu': { time: '08:15', date: '*', days: 'mon,thu', way: 'week' },
  '15 8 * * ': { time: '08:15', date: '*', days: '', way: 'week' }, // no day is chosen yet
  '15 8 15 * *': { time: '08:15', date: '15', days: '*', way: 'month' },
}

for (const [cron, said] of Object.entries(LINES))
  test(`the form says ${cron} as a time and days, and writes it as it was`, () => {
    deepEqual(timeOf(cron), said)
    equal(cronOf(said.time, said.date, said.days), cron)
  })

test('what the form cannot say stays a line of cron', () => {
  for (const cron of ['0 9 * * mon-fri', '*/5 * * * *', '0 9 1 1 *', '0 9 1 * mon', 'every day', ''])
    equal(timeOf(cron), null)
})
