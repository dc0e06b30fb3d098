import '../page'
import { equal } from 'node:assert/strict'
import { test } from 'node:test'
import { quiet } from '../../src/screens/workspace'

test('quiet hours are said in words, on all channels and days unless some are named', () => {
  equal(
    quiet({ from: '21:00', to: '08:00', timezone: 'contact', channels: ['email', 'sms', 'whatsapp'], maxWait: null }),
    '21:00 to 08:00 in the contact’s time zone, starting on any day; on all channels. Nothing is dropped.',
  )
  equal(
    quiet({
      from: '12:00',
      to: '13:00',
      timezone: 'workspace',
      channels: ['sms'],
      days: ['sat', 'sun'],
      maxWait: 'PT6H',
    }),
    '12:00 to 13:00 in the workspace’s time zone, starting on Saturday, Sunday; on SMS. Messages that would wait longer than 6 hours are dropped.',
  )
  equal(
    quiet({ from: '00:00', to: '00:00', timezone: 'workspace', channels: ['sms'], days: ['sun'], maxWait: null }),
    'a whole day from 00:00 in the workspace’s time zone, starting on Sunday; on SMS. Nothing is dropped.',
  )
})
