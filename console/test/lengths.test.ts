import './page'
import { equal } from 'node:assert/strict'
import { test } from 'node:test'
import { spelled } from '../src/lengths'

const SAID = {
  P1D: '1 day',
  P7D: '7 days',
  P2W: '2 weeks',
  PT1H: '1 hour',
  PT90M: '90 minutes',
  'PT0.5S': '0.5 seconds',
  P1DT12H: 'P1DT12H',
  PT1D: 'PT1D',
  P1H: 'P1H',
  P1M: 'P1M',
  '': '',
}

for (const [length, words] of Object.entries(SAID))
  test(`${length || 'no length'} is said as ${words || 'nothing'}`, () => equal(spelled(length), words))
